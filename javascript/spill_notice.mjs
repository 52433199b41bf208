// A spill is told when it begins, wherever the running job is looked at, with two ways on: to finish like this, or to
// step down now.

import { el, setText } from "./dom.mjs";
import { bytes } from "./format.mjs";
import { createNotice } from "./messages.mjs";

export function createSpillNotices({ api, t }) {
  const places = [];
  // "none", "asks", "left" (the user lets it be, until the job ends) or "stepping" (until the spill ends).
  let told = "none";
  let moved = "";

  function show(next) {
    told = next;
    for (const place of places) {
      place.element.hidden = told === "none" || told === "left";
      place.buttons.hidden = told !== "asks";
      setText(place.sentence, told === "stepping" ? t("spill.stepping") : t("spill.began", { bytes: moved }));
      if (told !== "asks") place.notice.clear();
    }
  }

  async function stepDown() {
    show("stepping");
    try {
      await api.post("jobs/step-down");
    } catch (error) {
      show("asks");
      places.forEach(({ notice }) => notice.fail(error));
    }
  }

  return {
    place() {
      const sentence = el("p", { class: "spillway-sentence" });
      const leave = el("button", { type: "button", class: "spillway-button", title: t("spill.leave.hint") }, t("spill.leave"));
      const step = el("button", { type: "button", class: "spillway-button", title: t("spill.step_down.hint") }, t("spill.step_down"));
      const buttons = el("div", { class: "spillway-row" }, leave, step);
      const notice = createNotice(t);
      const element = el(
        "div", { class: "spillway-message spillway-spill", "data-kind": "error", role: "alert", hidden: true },
        sentence, buttons, notice.element,
      );
      leave.addEventListener("click", () => show("left"));
      step.addEventListener("click", stepDown);
      places.push({ element, sentence, buttons, notice });
      show(told);
      return element;
    },
    follow({ job_running: running, state, snapshot }) {
      if (!running) {
        if (told !== "none") show("none");
      } else if (state === "spilling" && told === "none") {
        moved = bytes(snapshot.shared_spilled_bytes, t("word.unknown"));
        show("asks");
      } else if (state !== "spilling" && state !== "recovering" && (told === "asks" || told === "stepping")) {
        show("none");
      }
    },
  };
}
