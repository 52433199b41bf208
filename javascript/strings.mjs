// Words in the reader's language: by `?lang=`, else by the host's own setting, else by the browser's; English where a
// table lacks one.

import { en } from "./strings_en.mjs";
import { zh } from "./strings_zh.mjs";

const TABLES = { en, zh };

const PATIENCE_MS = 60000;

export function chooseLanguage(search, hostsOwn, navigatorLanguage) {
  const asked = new URLSearchParams(search).get("lang") || hostsOwn || navigatorLanguage || "en";
  return asked.toLowerCase().startsWith("zh") ? "zh" : "en";
}

// A host puts its table of words into the page before any script, none for its own English; the name of the table is
// among its options, which it tells when its page is built: on a slow machine many seconds later.
async function hostsOwn() {
  const translates = Object.keys(window.localization ?? {}).length > 0;
  if (!translates || typeof window.onOptionsAvailable !== "function") return null;
  await Promise.race([
    new Promise((resolve) => window.onOptionsAvailable(resolve)),
    new Promise((resolve) => setTimeout(resolve, PATIENCE_MS)),
  ]);
  const name = window.opts?.localization;
  return name && name !== "None" ? name : null;
}

export async function findLanguage() {
  return chooseLanguage(location.search, await hostsOwn(), navigator.language);
}

export function createTranslator(language) {
  const table = TABLES[language] ?? en;
  return function t(key, values = {}) {
    const text = table[key] ?? en[key] ?? key;
    return text.replace(/\{(\w+)\}/g, (whole, name) => String(values[name] ?? whole));
  };
}
