// What is known of the profiles at the size now set, and switching among them: one for every place that shows it.

import { seconds } from "./format.mjs";

export function createProfileStore({ api, t, size, onSwitched }) {
  const listeners = [];
  const state = { answer: null, asked: null, switching: false, words: null, error: null };
  let turn = 0;
  let sizeBefore = "";

  const tell = () => listeners.forEach((listener) => listener(state));

  async function refresh() {
    const mine = ++turn;
    const asked = size();
    try {
      const answer = await api.get("profile", asked);
      if (mine !== turn) return;
      Object.assign(state, { answer, asked, refused: null });
    } catch (error) {
      if (mine !== turn) return;
      // A size that cannot be is said where it is used; the rows of the last good size stay.
      if (error.reachable && state.answer) Object.assign(state, { asked, refused: error.message });
      else state.error = error;
    }
    tell();
  }

  return {
    refresh,
    subscribe(listener) {
      listeners.push(listener);
      listener(state);
    },
    async choose(profile) {
      Object.assign(state, { switching: true, error: null, words: t("profiles.switching", { profile }) });
      tell();
      try {
        const done = await api.put("profile", { profile });
        state.words = t("profiles.switched", { profile, seconds: seconds(done.switch_seconds) });
      } catch (error) {
        Object.assign(state, { error, words: null });
      }
      state.switching = false;
      await refresh();
      onSwitched();
    },
    // Another page, or the command line, may have switched.
    follow(profile) {
      if (state.answer && !state.switching && state.answer.profile !== profile) refresh();
    },
    // A host writes into its fields without an event, so they are looked at; what is still being typed is left.
    followSize() {
      const now = JSON.stringify(size());
      if (now === sizeBefore && state.asked && now !== JSON.stringify(state.asked)) refresh();
      sizeBefore = now;
    },
  };
}
