// Two minutes of memory as two lines: on the card, and borrowed; what the driver spilled is shaded.

import { el, setText, svg } from "./dom.mjs";
import { bytes } from "./format.mjs";

const SPAN_SECONDS = 120;
const WIDTH = 600;
const HEIGHT = 84;
// A longer silence than this is a gap in the line, not a slope.
const GAP_SECONDS = 6;

function runs(points, value) {
  const found = [];
  let current = [];
  let before = null;
  for (const point of points) {
    const known = value(point) !== null;
    if (current.length && (!known || point.taken_at - before > GAP_SECONDS)) {
      found.push(current);
      current = [];
    }
    if (known) current.push(point);
    before = point.taken_at;
  }
  if (current.length) found.push(current);
  return found;
}

export function createHistory(t) {
  const shade = svg("path", { class: "spillway-plot-spill" });
  const area = svg("path", { class: "spillway-plot-area" });
  const edge = svg("line", { class: "spillway-plot-edge", x1: 0, x2: WIDTH });
  const shared = svg("path", { class: "spillway-plot-shared" });
  const dedicated = svg("path", { class: "spillway-plot-dedicated" });
  const plot = svg(
    "svg",
    {
      class: "spillway-history-plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
      "aria-label": t("meter.history"),
    },
    area, shade, edge, shared, dedicated,
  );
  const top = el("span", { class: "spillway-axis-top" });
  const legend = el(
    "span",
    { class: "spillway-legend" },
    el("span", { class: "spillway-key", "data-line": "dedicated" }, t("meter.dedicated")),
    el("span", { class: "spillway-key", "data-line": "shared" }, t("meter.shared")),
  );
  const element = el(
    "figure",
    { class: "spillway-history" },
    plot, top,
    el("figcaption", {}, el("span", {}, t("meter.ago")), legend, el("span", {}, t("meter.now"))),
  );
  let points = [];

  const borrowed = (point) =>
    point.shared_pinned_bytes === null && point.shared_spilled_bytes === null
      ? null
      : (point.shared_pinned_bytes ?? 0) + (point.shared_spilled_bytes ?? 0);

  return {
    element,
    lastTaken: () => (points.length ? points[points.length - 1].taken_at : 0),
    update(answer) {
      const memory = answer.snapshot;
      const now = memory.taken_at;
      const last = points.length ? points[points.length - 1].taken_at : 0;
      points.push(...answer.history.filter((point) => point.taken_at > last));
      points = points.filter((point) => point.taken_at > now - SPAN_SECONDS && point.taken_at <= now + 1);
      const highest = Math.max(
        memory.dedicated_total_bytes ?? 0, ...points.map((point) => borrowed(point) ?? 0),
        ...points.map((point) => point.dedicated_used_bytes ?? 0), 2 ** 28,
      );
      const x = (point) => (WIDTH * (1 - (now - point.taken_at) / SPAN_SECONDS)).toFixed(1);
      const y = (value) => (HEIGHT * (1 - value / highest)).toFixed(1);
      const line = (value) =>
        runs(points, value).map((run) => "M" + run.map((point) => `${x(point)} ${y(value(point))}`).join("L")).join("");
      const filled = (value, base) =>
        runs(points, value)
          .map((run) => {
            const upper = run.map((point) => `${x(point)} ${y(value(point))}`);
            const lower = run.map((point) => `${x(point)} ${y(base(point))}`).reverse();
            return `M${[...upper, ...lower].join("L")}Z`;
          })
          .join("");
      dedicated.setAttribute("d", line((point) => point.dedicated_used_bytes));
      shared.setAttribute("d", line(borrowed));
      area.setAttribute("d", filled((point) => point.dedicated_used_bytes, () => 0));
      shade.setAttribute("d", filled(borrowed, (point) => point.shared_pinned_bytes ?? 0));
      const limit = memory.dedicated_limit_bytes ?? memory.dedicated_total_bytes;
      edge.toggleAttribute("hidden", limit === null);
      if (limit !== null) {
        const height = y(Math.min(limit, memory.dedicated_total_bytes ?? limit) * answer.edge_share);
        edge.setAttribute("y1", height);
        edge.setAttribute("y2", height);
      }
      setText(top, bytes(highest, ""));
    },
  };
}
