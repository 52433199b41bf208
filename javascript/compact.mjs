// The meter and the choice of a profile in the few lines that a host's own page has room for; as many as there are
// places for them.

import { createBars } from "./bars.mjs";
import { el, setAttribute, setText } from "./dom.mjs";
import { bytes } from "./format.mjs";
import { createNotice } from "./messages.mjs";

function createCompact({ store, spill, t, tab }) {
  const bars = createBars(t);
  const id = `spillway-compact-${tab}-profile`;
  const select = el("select", { class: "spillway-input", id });
  const line = el("p", { class: "spillway-profile-line", "aria-live": "polite" });
  const notice = createNotice(t);
  const choice = el("div", { class: "spillway-row" }, el("label", { for: id }, t("profiles.profile")), select, bars.aside);
  const element = el("div", { class: "spillway-compact-body" }, choice, line, notice.element, spill, bars.rows.dedicated, bars.rows.shared);
  select.addEventListener("change", () => store.choose(select.value));

  function option(item) {
    const needed = item.predicted_dedicated_bytes;
    const need = needed === null ? "" : ` · ${t("profiles.needs_bytes", { bytes: bytes(needed, "") })}`;
    return el(
      "option",
      { value: item.profile, disabled: item.unavailable_because !== null, title: item.unavailable_because ?? item.trade_off },
      item.unavailable_because === null ? item.profile + need : `${item.profile} · ${t("state.unavailable.option")}`,
    );
  }

  store.subscribe(({ answer, words, error, switching }) => {
    select.disabled = switching || !answer;
    if (error) notice.fail(error);
    else if (words) notice.say(words);
    else notice.clear();
    if (!answer) return;
    select.replaceChildren(...answer.rows.map(option));
    select.value = answer.profile;
    const row = answer.rows.find((item) => item.profile === answer.profile);
    setAttribute(select, "title", row?.trade_off);
    setText(line, answer.profile === "auto" ? answer.auto.reason : row?.note || row?.summary || "");
  });
  return { element, update: bars.update, unavailable: bars.unavailable };
}

export function createCompacts({ store, spills, t }) {
  const made = new Map();
  return {
    // gradio may draw a place anew; what stood in it is then drawn anew too.
    settle() {
      for (const place of document.querySelectorAll(".spillway-compact")) {
        const { tab } = place.dataset;
        if (!made.has(tab)) made.set(tab, createCompact({ store, spill: spills.place(), t, tab }));
        const { element } = made.get(tab);
        if (element.parentElement !== place) place.replaceChildren(element);
      }
    },
    isSeen: () => [...made.values()].some(({ element }) => element.isConnected && element.offsetParent !== null),
    update: (answer) => made.forEach((compact) => compact.update(answer)),
    unavailable: () => made.forEach((compact) => compact.unavailable()),
  };
}
