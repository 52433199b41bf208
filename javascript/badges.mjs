// A timing badge on each image of a gallery, found by the image's file name and never by its place.

import { el, setAttribute, setText } from "./dom.mjs";

const AT_ONCE = 40;
// The record is written when the image ends; a picture may be on the page a moment before.
const RETRY_MS = 700;
const RETRIES = 6;

export function fileName(source) {
  if (!source || source.startsWith("data:") || source.startsWith("blob:")) return null;
  const path = source.split(/[?#]/)[0];
  try {
    return decodeURIComponent(path.slice(path.lastIndexOf("/") + 1)).split("\\").pop().split("/").pop() || null;
  } catch {
    return null;
  }
}

export function createBadges({ api, details }) {
  const records = new Map();
  const stale = new Set();
  const tries = new Map();
  const badges = new Map();
  let gallery = null;
  let observer = null;
  let shown = true;
  let planned = false;
  let asking = false;

  function plan() {
    if (planned) return;
    planned = true;
    requestAnimationFrame(() => {
      planned = false;
      update();
    });
  }

  // The strip under a preview is too small for a badge; its image has one already.
  const wanted = () =>
    gallery ? [...gallery.querySelectorAll("img")].filter((image) => !image.closest(".thumbnail-small, .icon-button")) : [];

  function update() {
    const images = shown ? wanted() : [];
    const missing = new Set();
    for (const image of images) {
      // Not currentSrc, which names the picture before until the new one is loaded.
      const name = fileName(image.src);
      const record = name && records.get(name);
      if (record) put(image, name, record);
      else remove(image);
      const asks = !record || stale.has(name);
      if (name && asks && (tries.get(name) ?? 0) < RETRIES) missing.add(name);
    }
    for (const image of [...badges.keys()]) if (!image.isConnected || !images.includes(image)) remove(image);
    details.ownerGone();
    if (missing.size) ask([...missing].slice(0, AT_ONCE));
  }

  async function ask(names) {
    if (asking || document.hidden) return;
    asking = true;
    for (const name of names) tries.set(name, (tries.get(name) ?? 0) + 1);
    let found = 0;
    try {
      const answer = await api.get("images", { files: names });
      for (const [name, record] of Object.entries(answer.files)) {
        records.set(name, record);
        stale.delete(name);
        found += 1;
      }
    } catch {
      // Asked again below, a few times; a gallery without badges is still a gallery.
    }
    asking = false;
    if (found) plan();
    if (found < names.length) setTimeout(plan, RETRY_MS);
  }

  function put(image, name, record) {
    const host = image.parentElement;
    let badge = badges.get(image);
    if (!badge || badge.parentElement !== host) {
      remove(image);
      badge = el("span", { class: "spillway-badge" });
      badge.addEventListener("pointerenter", () => details.show(badge, records.get(badge.dataset.file)));
      badge.addEventListener("pointerleave", () => details.hide(badge));
      host.classList.add("spillway-badged");
      host.append(badge);
      badges.set(image, badge);
      listenForFocus(image.closest("button"), badge);
    }
    setAttribute(badge, "data-file", name);
    setAttribute(badge, "data-recovered", record.rungs.length ? "yes" : null);
    setAttribute(badge, "data-warm-up", record.warm_up ? "yes" : null);
    setText(badge, record.badge);
  }

  function listenForFocus(button, badge) {
    if (!button) return;
    button.addEventListener("focus", () => {
      if (badge.isConnected && button.matches(":focus-visible")) details.show(badge, records.get(badge.dataset.file));
    });
    button.addEventListener("blur", () => details.hide(badge));
  }

  function remove(image) {
    const badge = badges.get(image);
    if (!badge) return;
    details.hide(badge);
    badge.parentElement?.classList.remove("spillway-badged");
    badge.remove();
    badges.delete(image);
  }

  return {
    attach(element) {
      if (element === gallery) return;
      observer?.disconnect();
      gallery = element;
      // At once, before the browser paints: an image that gradio draws anew is never seen without its badge.
      observer = new MutationObserver(update);
      observer.observe(gallery, { childList: true, subtree: true, attributes: true, attributeFilter: ["src"] });
      plan();
    },
    // A name may have been written anew: it is asked again, and what is known of it stays until the answer.
    renew() {
      for (const name of records.keys()) stale.add(name);
      tries.clear();
      plan();
    },
    setShown(wantedShown) {
      if (shown === wantedShown) return;
      shown = wantedShown;
      plan();
    },
  };
}
