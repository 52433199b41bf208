// The running job: how far, how long still, and what was done to survive; otherwise the last job in a sentence.

import { card, el, setAttribute, setText } from "./dom.mjs";
import { roundSeconds, seconds } from "./format.mjs";

export function createProgress({ api, t, spill, onBegin, onEnd }) {
  const profile = el("span", { class: "spillway-tag", hidden: true });
  const headline = el("p", { class: "spillway-headline" }, t("progress.idle"));
  const fill = el("span", { class: "spillway-progress-fill" });
  const bar = el(
    "div",
    {
      class: "spillway-progress-track", role: "progressbar", "aria-label": t("title.progress"), "aria-valuemin": 0,
      "aria-valuemax": 100,
    },
    fill,
  );
  const facts = el("p", { class: "spillway-facts" });
  const rungs = el("ol", { class: "spillway-rungs", "aria-label": t("progress.rungs"), "aria-live": "polite" });
  const element = card(t("title.progress"), { id: "progress", aside: profile }, headline, bar, facts, spill, rungs);
  let running = false;
  let seenJob;

  function show(job) {
    setAttribute(element, "data-running", "yes");
    const stepShare = job.stage === "sample" && job.step_count ? job.step / job.step_count : 0;
    const share = Math.min(1, (job.image_index + Math.min(stepShare, 0.99)) / Math.max(1, job.image_count));
    const index = Math.min(job.image_index + 1, job.image_count);
    const stage = t(`stage.${job.stage}`);
    const step = job.stage === "sample" ? t("progress.step", { step: job.step, count: job.step_count }) : null;
    setText(
      headline,
      [t("progress.image", { index, count: job.image_count }), [stage, step].filter(Boolean).join(", ")].join(" · "),
    );
    const pace = job.seconds_per_image === null
      ? null : t("progress.per_image", { time: seconds(job.seconds_per_image) });
    const left = job.remaining_seconds === null
      ? null : t("progress.left", { time: roundSeconds(job.remaining_seconds) });
    setText(facts, [pace, left].filter(Boolean).join(" · "));
    profile.hidden = false;
    setText(profile, job.profile);
    fill.style.width = `${(share * 100).toFixed(1)}%`;
    setAttribute(bar, "aria-valuenow", Math.round(share * 100));
    showRungs(job.rungs);
  }

  function showRungs(words) {
    if (words.length === rungs.childElementCount && words.every((text, i) => rungs.children[i].textContent === text)) {
      return;
    }
    rungs.replaceChildren(...words.map((text) => el("li", {}, text)));
  }

  async function showLast() {
    let last;
    try {
      last = await api.get("jobs/last");
    } catch {
      return; // The meter says when nobody answers; the words of the last answer stay.
    }
    if (running) return;
    setAttribute(element, "data-running", null);
    profile.hidden = true;
    setText(headline, last.job_id === null ? t("progress.idle") : last.sentence);
    setText(facts, "");
    fill.style.width = "0%";
    setAttribute(bar, "aria-valuenow", 0);
    const told = last.job_id === null ? [] : [...last.images, ...last.given_up].flatMap((record) => record.rungs);
    showRungs([...new Set(told)]);
  }

  return {
    element,
    isRunning: () => running,
    showLast,
    // The meter's answer says whether a job runs, so an idle page asks one thing, not two. A job may also begin and
    // end between two answers: then only the last job's id tells.
    async follow({ job_running: jobRunning, last_job_id: lastJob }) {
      const ended = seenJob !== undefined && lastJob !== seenJob;
      seenJob = lastJob;
      if (!jobRunning && !running && !ended) return;
      if (jobRunning && !running) {
        running = true;
        onBegin();
      }
      if (jobRunning) {
        const job = await api.get("jobs/current").catch(() => null);
        if (job?.running) show(job);
        return;
      }
      running = false;
      await showLast();
      onEnd();
    },
  };
}
