// Seconds per image over time, a dot an image, coloured by profile; warm-ups are hollow.

import { el, svg } from "./dom.mjs";
import { seconds } from "./format.mjs";
import { profileColour } from "./colours.mjs";

const HEIGHT = 170;
const LEFT = 46;
const EDGE = 10;
const RADIUS = 4;

function niceTop(value) {
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * size).find((top) => top >= value) ?? value;
}

export function createLogPlot(t) {
  const plot = svg("svg", { class: "spillway-log-plot", height: HEIGHT, role: "img" });
  const legend = el("div", { class: "spillway-legend" });
  const element = el("figure", { class: "spillway-log-figure" }, plot, legend);
  let records = [];

  function draw() {
    const width = element.clientWidth;
    if (!width) return;
    plot.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    plot.setAttribute("width", width);
    plot.setAttribute("aria-label", t("log.plot", { count: records.length }));
    const top = niceTop(Math.max(0.01, ...records.map((record) => record.total_seconds)));
    const x = (index) =>
      records.length < 2 ? (LEFT + width - EDGE) / 2 : LEFT + RADIUS + ((width - LEFT - EDGE - 2 * RADIUS) * index) / (records.length - 1);
    const y = (value) => EDGE + (HEIGHT - 2 * EDGE) * (1 - value / top);
    const grid = [0, 0.5, 1].flatMap((share) => [
      svg("line", { class: "spillway-grid", x1: LEFT, x2: width - EDGE, y1: y(top * share), y2: y(top * share) }),
      svg("text", { class: "spillway-tick", x: LEFT - 8, y: y(top * share) + 4 }, `${+(top * share).toPrecision(3)} s`),
    ]);
    const dots = records.map((record, index) => {
      const colour = profileColour(record.profile_used);
      const dot = svg("circle", {
        cx: x(index).toFixed(1), cy: y(record.total_seconds).toFixed(1), r: RADIUS,
        "data-warm-up": record.warm_up ? "yes" : null,
      });
      dot.style.stroke = colour;
      dot.style.fill = record.warm_up ? "transparent" : colour;
      dot.append(svg("title", {}, `${seconds(record.total_seconds)} · ${record.profile_used} · ${record.width}×${record.height}`));
      return dot;
    });
    plot.replaceChildren(...grid, ...dots);
    const profiles = [...new Set(records.map((record) => record.profile_used))].sort();
    legend.replaceChildren(
      ...profiles.map((profile) => {
        const key = el("span", { class: "spillway-key" }, profile);
        key.style.setProperty("--key", profileColour(profile));
        return key;
      }),
      ...(records.some((record) => record.warm_up)
        ? [el("span", { class: "spillway-key", "data-hollow": "yes" }, t("log.hollow"))] : []),
    );
  }

  new ResizeObserver(draw).observe(element);
  return {
    element,
    update(newestFirst) {
      records = newestFirst.filter((record) => record.outcome === "delivered").reverse();
      element.hidden = records.length === 0;
      draw();
    },
  };
}
