// The cap on shared memory: by size, by share of RAM, or the default.

import { card, el, setText } from "./dom.mjs";
import { bytes } from "./format.mjs";
import { createNotice } from "./messages.mjs";

const GIB = 2 ** 30;

export function createCap({ api, t, onChanged }) {
  const kind = el(
    "select",
    { class: "spillway-input", "aria-label": t("cap.kind") },
    ...["default", "gib", "percent"].map((name) => el("option", { value: name }, t(`cap.${name}`))),
  );
  const value = el("input", {
    class: "spillway-input spillway-number", type: "number", min: 0, step: "any", "aria-label": t("cap.value"),
  });
  const apply = el("button", { class: "spillway-button", type: "submit" }, t("cap.apply"));
  const inForce = el("span", { class: "spillway-caption" });
  const notice = createNotice(t);
  const form = el("form", { class: "spillway-row", novalidate: true, title: t("cap.hint") }, kind, value, apply);
  const element = card(t("title.cap"), { id: "cap", aside: inForce }, form, notice.element);
  let touched = false;

  kind.addEventListener("change", () => {
    touched = true;
    value.disabled = kind.value === "default";
    if (value.disabled) value.value = "";
  });
  value.addEventListener("input", () => { touched = true; });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const number = value.valueAsNumber;
    if (kind.value !== "default" && Number.isNaN(number)) {
      notice.fail({ message: t("cap.empty"), detail: null });
      return;
    }
    try {
      await api.put("cap", {
        cap_bytes: kind.value === "gib" ? Math.round(number * GIB) : null,
        cap_ram_percent: kind.value === "percent" ? number : null,
      });
      notice.clear();
      touched = false;
      onChanged();
    } catch (error) {
      notice.fail(error);
    }
  });

  return {
    element,
    update(answer) {
      setText(inForce, t("cap.now", { cap: bytes(answer.cap_bytes, t("word.unknown")) }));
      // What a person is typing is left alone.
      if (touched || form.contains(document.activeElement)) return;
      const { cap_bytes: size, cap_ram_percent: percent } = answer.cap_setting;
      kind.value = size !== null ? "gib" : percent !== null ? "percent" : "default";
      value.disabled = kind.value === "default";
      value.value = size !== null ? String(+(size / GIB).toFixed(2)) : percent !== null ? String(percent) : "";
    },
  };
}
