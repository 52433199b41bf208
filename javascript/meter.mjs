// The live meter: how full memory is, in a word, in bars and over two minutes.

import { createBars } from "./bars.mjs";
import { card, setAttribute } from "./dom.mjs";
import { createHistory } from "./history.mjs";

export function createMeter(t) {
  const bars = createBars(t);
  const history = createHistory(t);
  const element = card(
    t("title.memory"), { id: "meter", aside: bars.aside }, ...Object.values(bars.rows), history.element,
  );
  return {
    element,
    lastTaken: () => history.lastTaken(),
    update(answer) {
      setAttribute(element, "data-taken-at", answer.snapshot.taken_at);
      setAttribute(element, "data-stale", null);
      bars.update(answer);
      history.update(answer);
    },
    unavailable() {
      bars.unavailable();
      setAttribute(element, "data-stale", "yes");
    },
  };
}
