// The record of an image, by the name of its file; where a host saved none, by the id in the picture's own parameters.

import { fetchTexts } from "./png_text.mjs";

const AT_ONCE = 40;
// The record is written when the image ends; a picture may be on the page a moment before.
const RETRY_MS = 700;
const RETRIES = 6;
const TEMPORARY = /^tmp[\w-]*\.png$/i;
const RECORD_ID = /\bSpillway id: ([0-9a-f]{8,32})\b/;

export function fileName(source) {
  if (!source || source.startsWith("data:") || source.startsWith("blob:")) return null;
  const path = source.split(/[?#]/)[0];
  try {
    return decodeURIComponent(path.slice(path.lastIndexOf("/") + 1)).split("\\").pop().split("/").pop() || null;
  } catch {
    return null;
  }
}

export function createLookup({ api, onFound }) {
  const records = new Map();
  const stale = new Set();
  const tries = new Map();
  const ids = new Map();
  let asking = false;

  async function idOf(name, source) {
    if (!ids.has(name)) {
      const texts = await fetchTexts(source).catch(() => ({}));
      ids.set(name, RECORD_ID.exec(texts.parameters ?? "")?.[1] ?? null);
    }
    return ids.get(name);
  }

  async function byName(names) {
    if (!names.length) return [];
    return Object.entries((await api.get("images", { files: names })).files);
  }

  async function byId(images) {
    const wanted = [];
    for (const [name, source] of images) wanted.push([name, await idOf(name, source)]);
    const known = wanted.filter(([, id]) => id !== null);
    if (!known.length) return [];
    const answer = await api.get("images", { ids: known.map(([, id]) => id) });
    return known.filter(([, id]) => answer.ids[id]).map(([name, id]) => [name, answer.ids[id]]);
  }

  async function ask(images) {
    if (asking || document.hidden) return;
    asking = true;
    for (const [name] of images) tries.set(name, (tries.get(name) ?? 0) + 1);
    const isTemporary = ([name]) => TEMPORARY.test(name);
    let found = [];
    try {
      found = await byName(images.filter((image) => !isTemporary(image)).map(([name]) => name));
      found.push(...await byId(images.filter(isTemporary)));
    } catch {
      // Asked again, a few times; a gallery without badges is still a gallery.
    }
    for (const [name, record] of found) {
      records.set(name, record);
      stale.delete(name);
    }
    asking = false;
    if (found.length) onFound();
    if (found.length < images.length) setTimeout(onFound, RETRY_MS);
  }

  return {
    get: (name) => records.get(name),
    // `sources`: the address of each image by its file's name.
    want(sources) {
      const missing = [...sources].filter(([name]) =>
        (!records.has(name) || stale.has(name)) && (tries.get(name) ?? 0) < RETRIES);
      if (missing.length) ask(missing.slice(0, AT_ONCE));
    },
    // A name may have been written anew: it is asked again, and what is known of it stays until the answer.
    renew() {
      for (const name of records.keys()) stale.add(name);
      tries.clear();
    },
  };
}
