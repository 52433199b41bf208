// The small window that opens beside a badge: where the time went, what the peaks were, what was done to survive.

import { el } from "./dom.mjs";
import { bytes, seconds } from "./format.mjs";

const MARGIN = 8;

export function createDetails(t) {
  const element = el("div", { class: "spillway-details", id: "spillway-details", role: "tooltip", hidden: true });
  let owner = null;

  function stageBar(record) {
    const stages = Object.entries(record.stage_seconds);
    const total = stages.reduce((sum, [, value]) => sum + value, 0) || 1;
    return [
      el(
        "div",
        { class: "spillway-stage-bar", "aria-hidden": "true" },
        ...stages.map(([stage, value]) => {
          const part = el("span", { "data-stage": stage });
          part.style.width = `${((value / total) * 100).toFixed(2)}%`;
          return part;
        }),
      ),
      el(
        "ul",
        { class: "spillway-stage-list" },
        ...stages.map(([stage, value]) =>
          el("li", { "data-stage": stage }, el("span", {}, t(`stage.${stage}`)), el("span", {}, seconds(value)))),
      ),
    ];
  }

  function fact(key, value) {
    return [el("dt", {}, t(key)), el("dd", {}, value)];
  }

  function show(anchor, record) {
    const unknown = t("word.unknown");
    owner = anchor;
    const parts = [
      el(
        "p",
        { class: "spillway-details-head" },
        el("b", {}, t("badge.total", { time: seconds(record.total_seconds) })),
        el("span", { class: "spillway-tag" }, record.profile_used),
        record.simulated ? el("span", { class: "spillway-tag" }, t("word.simulated")) : null,
      ),
      ...stageBar(record),
      el(
        "dl",
        {},
        ...fact("badge.size", `${record.width}×${record.height}, ${record.steps}`),
        ...fact("badge.dedicated", bytes(record.peak_dedicated_bytes, unknown)),
        ...fact("badge.shared", bytes(record.peak_shared_bytes, unknown)),
        ...fact("badge.moved", bytes(record.moved_bytes, unknown)),
      ),
      record.warm_up ? el("p", { class: "spillway-warm-up" }, t("badge.warm_up")) : null,
      record.rungs.length ? el("p", { class: "spillway-details-rungs" }, el("b", {}, t("badge.rungs"))) : null,
      record.rungs.length ? el("ol", {}, ...record.rungs.map((words) => el("li", {}, words))) : null,
    ];
    element.replaceChildren(...parts.filter((part) => part !== null));
    if (!element.isConnected) document.body.append(element);
    element.hidden = false;
    place(anchor);
  }

  // Fixed to the window: nothing on the page moves, and no frame of the gallery cuts it off.
  function place(anchor) {
    const at = anchor.getBoundingClientRect();
    const own = element.getBoundingClientRect();
    const left = Math.min(Math.max(MARGIN, at.left), window.innerWidth - own.width - MARGIN);
    const below = at.bottom + MARGIN;
    const top = below + own.height + MARGIN <= window.innerHeight ? below : at.top - own.height - MARGIN;
    element.style.left = `${Math.max(MARGIN, left)}px`;
    element.style.top = `${Math.max(MARGIN, top)}px`;
  }

  // The window goes along with its badge, and goes away with it.
  function follow() {
    if (owner === null) return;
    const at = owner.getBoundingClientRect();
    if (at.bottom < 0 || at.top > window.innerHeight) hide();
    else place(owner);
  }

  function hide(anchor = null) {
    if (anchor !== null && anchor !== owner) return;
    owner = null;
    element.hidden = true;
  }

  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  document.addEventListener("scroll", follow, { capture: true, passive: true });
  return { show, hide, ownerGone: () => { if (owner && !owner.isConnected) hide(); } };
}
