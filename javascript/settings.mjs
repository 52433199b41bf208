// What can be set besides the profile and the cap. Each control takes effect, and is saved, when it is changed.

import { card, el, setAttribute } from "./dom.mjs";
import { createNotice } from "./messages.mjs";

const SWITCHES = ["ladder_tile", "ladder_smaller_placement", "ladder_split_rows", "infotext"];
const WORDED = ["vae_tiling", "spill_kind"];

export function createSettings({ api, t, onChanged }) {
  const notice = createNotice(t);
  const percent = el("input", {
    class: "spillway-input spillway-number", type: "number", min: 50, max: 100, step: 1, id: "spillway-set-dedicated_percent",
  });
  const choosers = Object.fromEntries(
    WORDED.map((name) => [name, el("select", { class: "spillway-input", id: `spillway-set-${name}` })]),
  );
  const boxes = Object.fromEntries(
    SWITCHES.map((name) => [name, el("input", { type: "checkbox", id: `spillway-set-${name}` })]),
  );
  const field = (name, control, unit = null) =>
    el(
      "div", { class: "spillway-setting", title: t(`setting.${name}.hint`) },
      el("label", { for: control.id }, t(`setting.${name}`)), el("span", {}, control, unit),
    );
  const box = (name) =>
    el("label", { class: "spillway-switch", title: t(`setting.${name}.hint`) }, boxes[name], t(`setting.${name}`));
  const ladder = SWITCHES.filter((name) => name.startsWith("ladder_"));
  const element = card(
    t("title.settings"), { id: "settings" },
    field("dedicated_percent", percent, " %"),
    ...WORDED.map((name) => field(name, choosers[name])),
    el("fieldset", { class: "spillway-switches" }, el("legend", {}, t("setting.ladder")), ...ladder.map(box)),
    el("div", { class: "spillway-switches spillway-apart" }, box("infotext")),
    notice.element,
  );

  function show(settings) {
    if (document.activeElement !== percent) percent.value = String(settings.dedicated_percent);
    for (const name of SWITCHES) boxes[name].checked = settings[name];
    for (const name of WORDED) {
      const lacking = settings.unavailable_because[name] ?? {};
      const options = settings.choices[name].map((value) =>
        el("option", { value, disabled: value in lacking, title: lacking[value] }, t(`setting.${name}.${value}`)));
      choosers[name].replaceChildren(...options);
      choosers[name].value = settings[name];
      const reasons = Object.entries(lacking).map(([value, reason]) => `${t(`setting.${name}.${value}`)}: ${t("profiles.unavailable", { reason })}`);
      setAttribute(choosers[name].closest(".spillway-setting"), "title", [t(`setting.${name}.hint`), ...reasons].join("\n"));
    }
  }

  async function refresh() {
    try {
      show(await api.get("settings"));
    } catch {
      // The meter says when nobody answers.
    }
  }

  async function change(name, value) {
    try {
      show(await api.put("settings", { [name]: value }));
      notice.clear();
    } catch (error) {
      await refresh();
      notice.fail(error);
    }
    onChanged();
  }

  percent.addEventListener("change", () => change("dedicated_percent", percent.valueAsNumber));
  for (const name of SWITCHES) boxes[name].addEventListener("change", () => change(name, boxes[name].checked));
  for (const name of WORDED) choosers[name].addEventListener("change", () => change(name, choosers[name].value));
  return { element, refresh };
}
