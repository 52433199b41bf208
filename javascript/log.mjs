// The log: a row an image, newest first, to be filtered, paged, exported and cleared.

import { card, el, setText } from "./dom.mjs";
import { bytes, clock } from "./format.mjs";
import { profileColour } from "./colours.mjs";
import { createLogPlot } from "./log_plot.mjs";
import { createNotice } from "./messages.mjs";
import { createProfilePlot } from "./profile_plot.mjs";

const PAGE = 15;
const PLOTTED = 300;
const COLUMNS = ["time", "took", "speed", "profile", "size", "steps", "peak", "shared", "model", "notes"];
const NUMERIC = new Set(["took", "speed", "steps", "peak", "shared"]);

export function createLog({ api, t, language }) {
  const filters = Object.fromEntries(
    ["profile", "model", "size"].map((name) => [name, el("select", { class: "spillway-input", "aria-label": t(`log.${name}`) })]),
  );
  const csv = el("a", { class: "spillway-link", download: "spillway-images.csv" }, t("log.csv"));
  const json = el("a", { class: "spillway-link", download: "spillway-images.json" }, t("log.json"));
  const clear = el("button", { type: "button", class: "spillway-button" }, t("log.clear"));
  const yes = el("button", { type: "button", class: "spillway-button", "data-kind": "danger" }, t("log.clear_yes"));
  const no = el("button", { type: "button", class: "spillway-button" }, t("log.clear_no"));
  const question = el("span", {});
  const confirm = el("span", { class: "spillway-confirm", hidden: true, role: "group" }, question, yes, no);
  const tools = el(
    "div",
    { class: "spillway-row spillway-tools" },
    ...Object.values(filters),
    el("span", { class: "spillway-spacer" }),
    el("span", { class: "spillway-exports" }, t("log.export"), csv, json),
    clear, confirm,
  );
  const plot = createLogPlot(t);
  const byProfile = createProfilePlot(t);
  const body = el("tbody");
  const head = COLUMNS.map((name) =>
    el("th", { scope: "col", class: NUMERIC.has(name) ? "spillway-num" : null }, t(`log.${name}`)));
  const table = el("table", { class: "spillway-table" }, el("thead", {}, el("tr", {}, ...head)), body);
  const empty = el("p", { class: "spillway-empty" });
  const newer = el("button", { type: "button", class: "spillway-button" }, t("log.newer"));
  const older = el("button", { type: "button", class: "spillway-button" }, t("log.older"));
  const range = el("span", { class: "spillway-caption" });
  const pager = el("div", { class: "spillway-row spillway-pager" }, newer, range, older);
  const notice = createNotice(t);
  const element = card(
    t("title.log"), { id: "log" }, tools, notice.element, plot.element, byProfile.element,
    el("div", { class: "spillway-table-frame", tabindex: 0, role: "region", "aria-label": t("title.log") }, table), empty, pager,
  );
  let offset = 0;
  let count = 0;
  let turn = 0;

  function query() {
    const [width, height] = filters.size.value ? filters.size.value.split("x") : ["", ""];
    return { profile: filters.profile.value, model: filters.model.value, width, height };
  }

  function fillFilter(select, all, values) {
    const wanted = ["", ...values.map(([value]) => value)];
    if (select.options.length && wanted.join("\n") === [...select.options].map((option) => option.value).join("\n")) return;
    const chosen = select.value;
    select.replaceChildren(el("option", { value: "" }, all), ...values.map(([value, text]) => el("option", { value }, text)));
    select.value = wanted.includes(chosen) ? chosen : "";
  }

  async function refresh() {
    const mine = ++turn;
    try {
      const choices = await api.get("images/choices");
      fillFilter(filters.profile, t("log.all_profiles"), choices.profiles.map((name) => [name, name]));
      fillFilter(filters.model, t("log.all_models"), choices.models.map((name) => [name, name]));
      fillFilter(filters.size, t("log.all_sizes"), choices.sizes.map(([w, h]) => [`${w}x${h}`, `${w}×${h}`]));
      const asked = query();
      const [page, plotted] = await Promise.all([
        api.get("images", { ...asked, limit: PAGE, offset }),
        api.get("images", { ...asked, limit: PLOTTED }),
      ]);
      if (mine !== turn) return;
      draw(page, plotted, asked);
    } catch (error) {
      if (mine === turn) notice.fail(error);
    }
  }

  function draw(page, plotted, asked) {
    count = page.count;
    csv.href = api.link("images.csv", asked);
    json.href = api.link("images.json", asked);
    body.replaceChildren(...page.images.map(row));
    plot.update(plotted.images);
    byProfile.update(plotted.images);
    const filtered = Object.values(asked).some(Boolean);
    setText(empty, count ? "" : t(filtered ? "log.empty_filter" : "log.empty"));
    table.hidden = count === 0;
    pager.hidden = count <= PAGE;
    setText(range, t("log.range", { first: offset + 1, last: offset + page.images.length, count }));
    newer.disabled = offset === 0;
    older.disabled = offset + PAGE >= count;
    clear.disabled = count === 0 && !filtered;
    if (page.notices.length) notice.say(page.notices.join(" "));
  }

  function row(record) {
    const unknown = t("word.unknown");
    const dot = el("span", { class: "spillway-dot", "aria-hidden": "true" });
    dot.style.setProperty("--key", profileColour(record.profile_used));
    const cells = {
      time: [clock(record.started_at, language)],
      took: [record.total_seconds.toFixed(2)],
      speed: [record.steps_per_second === null ? "–" : record.steps_per_second.toFixed(1)],
      profile: [dot, record.profile_used],
      size: [`${record.width}×${record.height}`],
      steps: [String(record.steps)],
      peak: [bytes(record.peak_dedicated_bytes, unknown)],
      shared: [bytes(record.peak_shared_bytes, unknown)],
      model: [el("span", { class: "spillway-clip", title: record.model }, record.model)],
      notes: notes(record),
    };
    return el(
      "tr",
      { "data-outcome": record.outcome },
      ...COLUMNS.map((name) => el("td", { class: NUMERIC.has(name) ? "spillway-num" : null }, ...cells[name])),
    );
  }

  function notes(record) {
    const found = [];
    if (record.outcome !== "delivered") found.push([t("log.given_up"), record.message, "lost"]);
    if (record.rungs.length) found.push([t("log.recovered"), record.rungs.join("\n"), "recovered"]);
    if (record.warm_up) found.push([t("log.warm_up"), t("badge.warm_up"), "warm-up"]);
    if (record.simulated) found.push([t("word.simulated"), null, "simulated"]);
    return found.map(([text, title, kind]) => el("span", { class: "spillway-tag", title, "data-kind": kind }, text));
  }

  function ask(open) {
    setText(question, t("log.clear_ask", { count }));
    confirm.hidden = !open;
    clear.hidden = open;
    (open ? no : clear).focus();
  }

  for (const select of Object.values(filters)) {
    select.addEventListener("change", () => { offset = 0; refresh(); });
  }
  newer.addEventListener("click", () => { offset = Math.max(0, offset - PAGE); refresh(); });
  older.addEventListener("click", () => { offset += PAGE; refresh(); });
  clear.addEventListener("click", async () => {
    // Clearing takes everything, whatever the filter shows, so everything is counted.
    const all = await api.get("images", { limit: 1 }).catch(() => ({ count }));
    count = all.count;
    ask(true);
  });
  no.addEventListener("click", () => ask(false));
  yes.addEventListener("click", async () => {
    try {
      const { cleared } = await api.post("images/clear");
      notice.say(t("log.cleared", { count: cleared }));
    } catch (error) {
      notice.fail(error);
    }
    offset = 0;
    ask(false);
    refresh();
  });
  return { element, refresh: () => refresh(), firstPage: () => { offset = 0; return refresh(); } };
}
