// The choice of a profile: what each does, what it would need at the size now set, and what it took before.

import { card, el, setText } from "./dom.mjs";
import { bytes, seconds } from "./format.mjs";
import { createNotice } from "./messages.mjs";

export function createProfiles({ store, t }) {
  const caption = el("span", { class: "spillway-caption" });
  const list = el("div", { class: "spillway-profiles", role: "radiogroup" });
  const notice = createNotice(t);
  const element = card(t("title.profiles"), { id: "profiles", aside: caption }, list, notice.element);
  list.setAttribute("aria-labelledby", "spillway-profiles-title");
  let answer = null;
  let switching = false;
  let drawn = "";

  store.subscribe((state) => {
    const ended = switching && !state.switching;
    ({ answer, switching } = state);
    if (state.error) notice.fail(state.error);
    else if (state.words) notice.say(state.words);
    else notice.clear();
    if (!answer) return;
    setText(caption, state.refused ?? t("profiles.size", state.asked));
    draw();
    if (ended) list.querySelector("input:checked")?.focus();
  });

  function draw() {
    // Redrawing takes the focus away, so only a change is drawn.
    const now = JSON.stringify([answer, switching]);
    if (now === drawn) return;
    drawn = now;
    const focused = list.contains(document.activeElement) ? document.activeElement.value : null;
    list.replaceChildren(...answer.rows.map(row));
    if (focused) list.querySelector(`input[value="${CSS.escape(focused)}"]`)?.focus();
  }

  function row(item) {
    const name = item.profile;
    const off = item.unavailable_because !== null;
    const radio = el("input", {
      type: "radio", name: "spillway-profile", value: name, id: `spillway-profile-${name}`,
      "aria-describedby": `spillway-profile-${name}-text`,
    });
    radio.checked = name === answer.profile;
    radio.disabled = off || switching;
    radio.addEventListener("change", () => store.choose(name));
    const isAuto = name === "auto";
    const text = off
      ? t("profiles.unavailable", { reason: item.unavailable_because })
      : isAuto ? answer.auto.reason : item.summary;
    const kind = name === "spill" ? el("span", { class: "spillway-tag" }, t(`setting.spill_kind.${answer.spill_kind}`)) : null;
    const second = !off && !isAuto && item.note ? el("span", { class: "spillway-profile-note" }, item.note) : null;
    return el(
      "label",
      { class: "spillway-profile", "data-off": off ? "yes" : null, title: item.trade_off },
      radio,
      el(
        "span",
        { class: "spillway-profile-text", id: `spillway-profile-${name}-text` },
        el("b", {}, name, kind),
        el("span", { class: "spillway-profile-line" }, text),
        second,
      ),
      off ? null : el("span", { class: "spillway-profile-figures" }, ...figures(item, isAuto)),
    );
  }

  function figures(item, isAuto) {
    const needed = isAuto ? answer.auto.estimated_dedicated_bytes : item.predicted_dedicated_bytes;
    const shared = isAuto ? null : item.predicted_shared_bytes;
    const words = { bytes: bytes(needed, t("word.unknown")), shared: bytes(shared, "") };
    const tight = item.fits === false ? t("profiles.too_big") : null;
    const need = el(
      "span",
      { class: "spillway-need", "data-tight": tight ? "yes" : null, title: tight ?? t("profiles.needs") },
      t(shared ? "profiles.needs_both" : "profiles.needs_bytes", words), tight ? el("span", { class: "spillway-small" }, tight) : null,
    );
    if (isAuto) return [need];
    const count = item.measured_count;
    const took = item.measured_seconds === null
      ? el("span", { class: "spillway-took", "data-none": "yes" }, t("profiles.not_measured"))
      : el(
        "span", { class: "spillway-took", title: t("profiles.took") },
        t("profiles.measured", { seconds: seconds(item.measured_seconds) }),
        el("span", { class: "spillway-small" }, count === 1 ? t("profiles.image") : t("profiles.images", { count })),
      );
    return [need, took];
  }

  return { element };
}
