// Seconds per image by profile, of images that can be compared: one model, one size, as many steps. A dot an image, a
// line at the median; warm-ups are left out.

import { profileColour } from "./colours.mjs";
import { el, setText, svg } from "./dom.mjs";
import { seconds } from "./format.mjs";

const ROW = 26;
const LEFT = 92;
const RIGHT = 118;
const RADIUS = 4;

const kindOf = (record) => JSON.stringify([record.model, record.width, record.height, record.steps]);

function grouped(records, key) {
  const groups = new Map();
  for (const record of records) groups.set(key(record), [...(groups.get(key(record)) ?? []), record]);
  return groups;
}

// The kind of image that most can be said of: the most profiles, then the most images; the newest of equals.
function comparable(records) {
  const profiles = (group) => new Set(group.map((record) => record.profile_used)).size;
  return [...grouped(records, kindOf).values()]
    .sort((one, other) => profiles(other) - profiles(one) || other.length - one.length)[0] ?? [];
}

function median(values) {
  const sorted = [...values].sort((one, other) => one - other);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

export function createProfilePlot(t) {
  const plot = svg("svg", { class: "spillway-profile-plot", role: "img" });
  const caption = el("figcaption", { class: "spillway-caption" });
  const element = el("figure", { class: "spillway-log-figure" }, caption, plot);
  let rows = [];

  function draw() {
    const width = element.clientWidth;
    if (!width || !rows.length) return;
    const height = rows.length * ROW;
    const slowest = Math.max(...rows.flatMap((row) => row.values));
    const x = (value) => LEFT + RADIUS + ((width - LEFT - RIGHT - 2 * RADIUS) * value) / slowest;
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) plot.setAttribute(name, value);
    plot.setAttribute("aria-label", [caption.textContent, ...rows.map((row) => `${row.profile} ${row.text}`)].join("; "));
    plot.replaceChildren(...rows.flatMap((row, index) => {
      const y = index * ROW + ROW / 2;
      const dots = row.values.map((value) => {
        const dot = svg("circle", { cx: x(value).toFixed(1), cy: y, r: RADIUS });
        dot.style.fill = profileColour(row.profile);
        return dot;
      });
      return [
        svg("line", { class: "spillway-grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }),
        svg("text", { class: "spillway-tick", x: LEFT - 10, y: y + 4 }, row.profile),
        ...dots,
        svg("line", { class: "spillway-median", x1: x(row.median), x2: x(row.median), y1: y - 9, y2: y + 9 }),
        svg("text", { class: "spillway-tick", "data-start": "yes", x: width - RIGHT + 10, y: y + 4 }, row.text),
      ];
    }));
  }

  new ResizeObserver(draw).observe(element);
  return {
    element,
    update(newestFirst) {
      const group = comparable(newestFirst.filter((record) => record.outcome === "delivered" && !record.warm_up));
      rows = [...grouped(group, (record) => record.profile_used)].map(([profile, records]) => {
        const values = records.map((record) => record.total_seconds);
        const count = values.length;
        const images = count === 1 ? t("profiles.image") : t("profiles.images", { count });
        return { profile, values, median: median(values), text: `${seconds(median(values))} · ${images}` };
      }).sort((one, other) => one.median - other.median);
      element.hidden = rows.length === 0;
      if (!rows.length) return;
      const { width, height, steps, model } = group[0];
      setText(caption, t("log.by_profile", { width, height, steps, model }));
      draw();
    },
  };
}
