// The entry: the only module that does something when it is loaded. A host may load every module on its own and this
// one twice; the second finds the mark on the page and leaves.

import { createApi } from "./api.mjs";
import { createBadges } from "./badges.mjs";
import { createCap } from "./cap.mjs";
import { createCompacts } from "./compact.mjs";
import { createDetails } from "./details.mjs";
import { el } from "./dom.mjs";
import { requestedSize } from "./fields.mjs";
import { translateForm } from "./form.mjs";
import { findGalleries } from "./galleries.mjs";
import { createHeader } from "./header.mjs";
import { createLog } from "./log.mjs";
import { listenForCopies } from "./messages.mjs";
import { createMeter } from "./meter.mjs";
import { createPoller } from "./poll.mjs";
import { createProfileStore } from "./profile_store.mjs";
import { createProfiles } from "./profiles.mjs";
import { createProgress } from "./progress.mjs";
import { createSettings } from "./settings.mjs";
import { createSpillNotices } from "./spill_notice.mjs";
import { createTranslator, findLanguage } from "./strings.mjs";

function createBadgeSwitch(t, onChange) {
  const box = el("input", { type: "checkbox", id: "spillway-badges-shown" });
  box.checked = true;
  box.addEventListener("change", () => onChange(box.checked));
  return { element: el("label", { class: "spillway-switch" }, box, t("badges.switch")), box };
}

async function start(place) {
  const language = await findLanguage();
  document.documentElement.setAttribute("data-spillway-language", language);
  const t = createTranslator(language);
  const api = createApi(new URL(place.dataset.api, document.baseURI), t, language);
  const badges = createBadges({ api, details: createDetails(t) });
  let ownJob = false;
  let savingBadges = false;

  const badgeSwitch = createBadgeSwitch(t, async (shown) => {
    savingBadges = true;
    badges.setShown(shown);
    await api.put("settings", { badges: shown }).catch(() => null);
    savingBadges = false;
  });
  const header = createHeader({ api, badgeSwitch: badgeSwitch.element });
  const meter = createMeter(t);
  const log = createLog({ api, t, language });
  const store = createProfileStore({ api, t, size: requestedSize, onSwitched: () => poller.now() });
  const profiles = createProfiles({ store, t });
  const spills = createSpillNotices({ api, t });
  const compacts = createCompacts({ store, spills, t });
  const settings = createSettings({
    api,
    t,
    onChanged() {
      poller.now();
      store.refresh();
    },
  });
  const cap = createCap({ api, t, onChanged: () => poller.now() });
  const progress = createProgress({
    api,
    t,
    spill: spills.place(),
    onBegin: () => document.documentElement.setAttribute("data-spillway-running", "yes"),
    onEnd() {
      document.documentElement.removeAttribute("data-spillway-running");
      badges.renew();
      header.refresh();
      log.firstPage();
      store.refresh();
      if (!ownJob) document.querySelector("button#spillway-refresh, #spillway-refresh button")?.click();
      ownJob = false;
    },
  });
  const parts = {
    root: header, meter, progress, profiles, cap, settings, log,
  };

  // gradio may build a part late, behind a tab, or anew; our node then moves into the new place.
  function settle() {
    for (const [name, part] of Object.entries(parts)) {
      const place = document.getElementById(`spillway-${name}`);
      if (place && part.element.parentElement !== place) place.replaceChildren(part.element);
    }
    compacts.settle();
    badges.attach(findGalleries());
    translateForm(t, language);
  }

  const isSeen = () => (header.element.isConnected && header.element.offsetParent !== null) || compacts.isSeen();
  let answered = false;
  const poller = createPoller({
    ask: () => api.get("memory", { since: meter.lastTaken() }),
    isWanted: () => !answered || progress.isRunning() || isSeen(),
    onAnswer(answer) {
      answered = true;
      meter.update(answer);
      compacts.update(answer);
      cap.update(answer);
      store.follow(answer.profile);
      store.followSize();
      if (!savingBadges && badgeSwitch.box.checked !== answer.badges) badgeSwitch.box.checked = answer.badges;
      if (!savingBadges) badges.setShown(answer.badges);
      spills.follow(answer);
      progress.follow(answer);
    },
    onReachable(reachable) {
      if (reachable) refreshAll();
      else for (const shown of [meter, compacts]) shown.unavailable();
    },
  });

  function refreshAll() {
    header.refresh();
    store.refresh();
    settings.refresh();
    progress.showLast();
    log.refresh();
  }

  document.addEventListener("click", (event) => {
    if (event.target.closest?.("#spillway-generate")) ownJob = true;
  });
  listenForCopies(t);
  settle();
  watch(settle);
  whenVisible(refreshAll);
  poller.start();
}

function whenVisible(act) {
  if (!document.hidden) {
    act();
    return;
  }
  document.addEventListener("visibilitychange", () => whenVisible(act), { once: true });
}

function watch(act) {
  let planned = false;
  new MutationObserver(() => {
    if (planned) return;
    planned = true;
    requestAnimationFrame(() => {
      planned = false;
      act();
    });
  }).observe(document.body, { childList: true, subtree: true });
}

function whenThere(selector, act) {
  const found = document.querySelector(selector);
  if (found) {
    act(found);
    return;
  }
  const observer = new MutationObserver(() => {
    const later = document.querySelector(selector);
    if (!later) return;
    observer.disconnect();
    act(later);
  });
  observer.observe(document.documentElement, { childList: true, subtree: true });
}

if (!document.documentElement.hasAttribute("data-spillway")) {
  document.documentElement.setAttribute("data-spillway", "on");
  // gradio may build the tab only when it is opened; the compact form on another one does not wait for it.
  whenThere("#spillway-root, .spillway-compact", start);
}
