// One steady question to the server: at an even pace while wanted, never while the page is hidden, and ever less
// often while nobody answers.

const PERIOD_MS = 500;
const FAILURES_BEFORE_SAYING_SO = 3;
const FIRST_RETRY_MS = 1000;
const LAST_RETRY_MS = 15000;

export function createPoller({ ask, onAnswer, onReachable, isWanted }) {
  let timer = null;
  let asking = false;
  let failures = 0;

  function wait(delay) {
    clearTimeout(timer);
    timer = document.hidden ? null : setTimeout(turn, delay);
  }

  async function turn() {
    timer = null;
    if (document.hidden || asking) return;
    if (!isWanted()) {
      wait(PERIOD_MS);
      return;
    }
    asking = true;
    const started = performance.now();
    let delay;
    try {
      const answer = await ask();
      if (failures >= FAILURES_BEFORE_SAYING_SO) onReachable(true, null);
      failures = 0;
      onAnswer(answer);
      delay = Math.max(50, PERIOD_MS - (performance.now() - started));
    } catch (error) {
      failures += 1;
      const beyond = failures - FAILURES_BEFORE_SAYING_SO;
      if (beyond === 0) onReachable(false, error);
      delay = beyond < 0 ? PERIOD_MS : Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** beyond);
    } finally {
      asking = false;
    }
    wait(delay);
  }

  document.addEventListener("visibilitychange", () => wait(0));
  return { start: () => wait(0), now: () => wait(0) };
}
