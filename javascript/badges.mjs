// A timing badge on each image of the galleries, found by the image's file and never by its place.

import { el, setAttribute, setText } from "./dom.mjs";
import { seconds } from "./format.mjs";
import { createLookup, fileName } from "./lookup.mjs";

const MARGIN = 8;

export function createBadges({ api, details }) {
  const lookup = createLookup({ api, onFound: plan });
  const badges = new Map();
  const listening = new WeakSet();
  const fitted = new WeakMap();
  let galleries = [];
  let shown = true;
  let planned = false;
  // At once, before the browser paints: an image that gradio draws anew is never seen without its badge.
  const observer = new MutationObserver(update);
  const resized = new ResizeObserver((entries) => entries.forEach(({ target }) => place(target)));

  function plan() {
    if (planned) return;
    planned = true;
    requestAnimationFrame(() => {
      planned = false;
      update();
    });
  }

  // The strip under a preview is too small for a badge; its image has one already. A grid is no image of its own.
  function wanted() {
    return galleries.flatMap(({ element, grids }) => {
      const gridSources = new Set(grids());
      return [...element.querySelectorAll("img")].filter(
        (image) => !image.closest(".thumbnail-small, .icon-button") && !gridSources.has(image.src),
      );
    });
  }

  function update() {
    const images = shown ? wanted() : [];
    const sources = new Map();
    for (const image of images) {
      // Not currentSrc, which names the picture before until the new one is loaded.
      const name = fileName(image.src);
      const record = name && lookup.get(name);
      if (record) put(image, name, record);
      else remove(image);
      if (name) sources.set(name, image.src);
    }
    for (const image of [...badges.keys()]) if (!image.isConnected || !images.includes(image)) remove(image);
    details.ownerGone();
    lookup.want(sources);
  }

  function put(image, name, record) {
    const host = image.parentElement;
    let badge = badges.get(image);
    if (!badge || badge.parentElement !== host) {
      remove(image);
      badge = el("span", { class: "spillway-badge" });
      badge.addEventListener("pointerenter", () => details.show(badge, lookup.get(badge.dataset.file)));
      badge.addEventListener("pointerleave", () => details.hide(badge));
      host.classList.add("spillway-badged");
      // Last in its parent: what the host's own script inserts goes before nodes of its own.
      host.append(badge);
      badges.set(image, badge);
      resized.observe(image);
      listen(image);
    }
    setAttribute(badge, "data-file", name);
    setAttribute(badge, "data-recovered", record.rungs.length ? "yes" : null);
    setAttribute(badge, "data-warm-up", record.warm_up ? "yes" : null);
    setText(badge, record.badge);
    place(image);
  }

  // Where the whole line has no room, the two things that a glance is for are shown in its place. Measuring lays the
  // page out, so it is done once for each line and width.
  function fit(image, badge) {
    const record = lookup.get(badge.dataset.file);
    const now = `${record.badge} ${image.offsetWidth}`;
    if (fitted.get(badge) === now) return;
    fitted.set(badge, now);
    setAttribute(badge, "data-short", null);
    const short = `${seconds(record.total_seconds)} · ${record.profile_used}`;
    if (badge.scrollWidth > badge.clientWidth) setAttribute(badge, "data-short", short);
  }

  // Where an image shares its parent with other things, the style sheet cannot know where its corner is.
  function place(image) {
    const badge = badges.get(image);
    if (!badge) return;
    fit(image, badge);
    if (image.closest("button") || !image.naturalWidth) return;
    const { offsetLeft, offsetTop, offsetWidth, offsetHeight } = image;
    const scale = Math.min(offsetWidth / image.naturalWidth, offsetHeight / image.naturalHeight);
    const width = image.naturalWidth * scale;
    const below = (offsetHeight - image.naturalHeight * scale) / 2;
    badge.style.left = `${offsetLeft + (offsetWidth - width) / 2 + MARGIN}px`;
    badge.style.bottom = `${image.parentElement.clientHeight - offsetTop - offsetHeight + below + MARGIN}px`;
  }

  // The host draws other pictures with the same nodes: whichever badge is on one now is meant.
  function listen(image) {
    const node = image.closest("button") ?? image;
    if (listening.has(node)) return;
    listening.add(node);
    image.addEventListener("load", () => place(image));
    const badgeOf = () => node.querySelector(".spillway-badge");
    node.addEventListener("focus", () => {
      const badge = badgeOf();
      if (badge && node.matches(":focus-visible")) details.show(badge, lookup.get(badge.dataset.file));
    });
    node.addEventListener("blur", () => {
      const badge = badgeOf();
      if (badge) details.hide(badge);
    });
  }

  function remove(image) {
    const badge = badges.get(image);
    if (!badge) return;
    details.hide(badge);
    badge.parentElement?.classList.remove("spillway-badged");
    badge.remove();
    resized.unobserve(image);
    badges.delete(image);
  }

  return {
    attach(found) {
      if (found.length === galleries.length && found.every(({ element }, i) => element === galleries[i].element)) return;
      observer.disconnect();
      galleries = found;
      for (const { element } of galleries) {
        observer.observe(element, { childList: true, subtree: true, attributes: true, attributeFilter: ["src"] });
      }
      plan();
    },
    renew() {
      lookup.renew();
      plan();
    },
    setShown(wantedShown) {
      if (shown === wantedShown) return;
      shown = wantedShown;
      plan();
    },
  };
}
