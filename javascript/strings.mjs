// Words in the reader's language: by `?lang=`, else by the browser's own; English where a table lacks one.

import { en } from "./strings_en.mjs";
import { zh } from "./strings_zh.mjs";

const TABLES = { en, zh };

export function chooseLanguage(search, navigatorLanguage) {
  const asked = new URLSearchParams(search).get("lang") || navigatorLanguage || "en";
  return asked.toLowerCase().startsWith("zh") ? "zh" : "en";
}

export function createTranslator(language) {
  const table = TABLES[language] ?? en;
  return function t(key, values = {}) {
    const text = table[key] ?? en[key] ?? key;
    return text.replace(/\{(\w+)\}/g, (whole, name) => String(values[name] ?? whole));
  };
}
