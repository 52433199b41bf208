// How full the card, the borrowed memory and RAM are, as bars, and the word for it. The meter and its compact form
// show the same.

import { el, setAttribute, setText } from "./dom.mjs";
import { scaleFor } from "./format.mjs";

function createBar(name, t, parts) {
  const segments = Object.fromEntries(
    parts.map((part) => [part, el("span", { class: "spillway-segment", "data-part": part })]),
  );
  const mark = el("span", { class: "spillway-mark", hidden: true });
  const track = el("div", { class: "spillway-track", role: "img" }, ...Object.values(segments), mark);
  const figure = el("span", { class: "spillway-figure" });
  const detail = el("div", { class: "spillway-parts" });
  const row = el(
    "div",
    { class: "spillway-bar", "data-name": name },
    el("span", { class: "spillway-label" }, t(`meter.${name}`)),
    track,
    figure,
    detail,
  );
  return {
    row,
    update({ scale, widths, words, partWords, hint, markAt = null, because = null }) {
      for (const [part, segment] of Object.entries(segments)) {
        const share = scale ? Math.max(0, Math.min(1, (widths[part] ?? 0) / scale)) : 0;
        segment.style.width = `${(share * 100).toFixed(2)}%`;
      }
      mark.hidden = markAt === null;
      if (markAt !== null) mark.style.left = `${(markAt * 100).toFixed(2)}%`;
      setText(figure, words);
      setText(detail, partWords);
      setAttribute(track, "aria-label", `${t(`meter.${name}`)}: ${words}`);
      setAttribute(row, "title", because ?? hint);
      setAttribute(row, "data-unknown", because === null ? null : "yes");
    },
  };
}

export function createBars(t) {
  const word = el("span", { class: "spillway-state-word" }, t("state.unknown"));
  const state = el("span", { class: "spillway-state", "data-state": "unknown", role: "status" }, word);
  const simulated = el("span", { class: "spillway-tag", hidden: true }, t("word.simulated"));
  const aside = el("span", { class: "spillway-aside" }, simulated, state);
  const dedicated = createBar("dedicated", t, ["process", "others"]);
  const shared = createBar("shared", t, ["pinned", "spilled"]);
  const ram = createBar("ram", t, ["used"]);
  const unknown = t("word.unknown");
  const written = (scale, value) => (value === null ? unknown : scale.write(value));

  function showState(name, percent) {
    setAttribute(state, "data-state", name);
    setAttribute(state, "title", t(`state.hint.${name}`, { percent }));
    setText(word, t(`state.${name}`));
  }

  function updateDedicated(memory, edge, percent) {
    const { dedicated_used_bytes: used, dedicated_total_bytes: total, dedicated_process_bytes: own } = memory;
    const known = used !== null && total !== null;
    const others = known && own !== null ? Math.max(0, used - own) : null;
    const scale = scaleFor(total ?? Infinity);
    dedicated.update({
      scale: known ? total : 0,
      widths: own === null ? { others: used ?? 0 } : { process: Math.min(own, used ?? own), others: others ?? 0 },
      words: known ? t("word.of", { used: scale.write(used), total: scale.write(total), unit: scale.unit }) : unknown,
      partWords: t("meter.dedicated.parts", {
        process: written(scale, own),
        others: written(scale, others),
        free: written(scale, memory.dedicated_free_bytes),
      }),
      hint: t("meter.dedicated.hint", { percent }),
      markAt: known ? Math.min(1, (edge * Math.min(total, memory.dedicated_limit_bytes ?? total)) / total) : null,
      because: known ? null : why(memory, "dedicated_used_bytes", "dedicated_total_bytes"),
    });
  }

  function updateShared(memory, cap) {
    const { shared_pinned_bytes: pinned, shared_spilled_bytes: spilled, shared_used_bytes: used } = memory;
    const least = used ?? pinned ?? spilled;
    const scale = scaleFor(cap);
    shared.update({
      scale: least === null ? 0 : Math.max(cap, least),
      widths: { pinned: pinned ?? 0, spilled: spilled ?? 0 },
      words: least === null
        ? unknown
        : t("word.of_cap", { used: scale.write(least), total: scale.write(cap), unit: scale.unit }),
      partWords: t("meter.shared.parts", { pinned: written(scale, pinned), spilled: written(scale, spilled) }),
      hint: t("meter.shared.hint"),
      markAt: least !== null && least > cap ? cap / least : null,
      because: used === null ? why(memory, "shared_pinned_bytes", "shared_spilled_bytes") : null,
    });
  }

  function updateRam(memory) {
    const { ram_used_bytes: used, ram_total_bytes: total } = memory;
    const known = used !== null && total !== null;
    const scale = scaleFor(total ?? Infinity);
    ram.update({
      scale: known ? total : 0,
      widths: { used: used ?? 0 },
      words: known ? t("word.of", { used: scale.write(used), total: scale.write(total), unit: scale.unit }) : unknown,
      partWords: t("meter.ram.parts", { free: known ? scale.write(Math.max(0, total - used)) : unknown }),
      hint: t("meter.ram.hint"),
      because: known ? null : why(memory, "ram_used_bytes", "ram_total_bytes"),
    });
  }

  function why(memory, ...names) {
    const reasons = names.map((name) => memory.unknown_because[name]).filter(Boolean);
    return [...new Set(reasons)].join("; ") || unknown;
  }

  return {
    aside,
    rows: { dedicated: dedicated.row, shared: shared.row, ram: ram.row },
    update(answer) {
      const percent = Math.round(answer.edge_share * 100);
      showState(answer.state, percent);
      simulated.hidden = !answer.snapshot.simulated;
      updateDedicated(answer.snapshot, answer.edge_share, percent);
      updateShared(answer.snapshot, answer.cap_bytes);
      updateRam(answer.snapshot);
    },
    unavailable: () => showState("unavailable"),
  };
}
