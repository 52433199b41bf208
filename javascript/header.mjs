// Who the host is, and the sentences a person should know before the first image.

import { el, setText } from "./dom.mjs";

export function createHeader({ api, badgeSwitch }) {
  const facts = el("span", { class: "spillway-host" });
  const notices = el("div", { class: "spillway-notices" });
  const element = el(
    "div",
    { class: "spillway-header" },
    el("h1", { class: "spillway-name" }, "Spillway"), facts, el("span", { class: "spillway-spacer" }), badgeSwitch, notices,
  );
  return {
    element,
    async refresh() {
      const host = await api.get("host").catch(() => null);
      if (!host) return;
      setText(facts, [host.model, host.device_name].filter(Boolean).join(" · "));
      notices.replaceChildren(...host.notices.map((sentence) => el("span", { class: "spillway-host-notice" }, sentence)));
    },
  };
}
