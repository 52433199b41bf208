// The words of gradio's own fields in the reader's language.

const FIELDS = [
  "prompt", "negative-prompt", "width", "height", "steps", "sampler", "guidance", "seed", "batch-size", "batch-count",
];
const BUTTONS = ["generate", "stop"];

// gradio's labels are text nodes that it never changes again; in English they are right already.
export function translateForm(t, language) {
  if (language === "en") return;
  for (const name of FIELDS) {
    writeText(document.querySelector(`#spillway-${name} [data-testid="block-info"]`), t(`form.${name}`));
  }
  for (const name of BUTTONS) writeText(document.querySelector(`button#spillway-${name}`), t(`form.${name}`));
  writeText(document.querySelector('#spillway-gallery [data-testid="block-label"]'), t("form.gallery"));
  writePlaceholder("prompt", t("form.what_to_draw"));
  writePlaceholder("negative-prompt", t("form.what_to_avoid"));
}

function writeText(element, text) {
  const nodes = element ? [...element.childNodes].filter((node) => node.nodeType === 3 && node.data.trim()) : [];
  const last = nodes[nodes.length - 1];
  if (last && last.data.trim() !== text) last.data = text;
}

function writePlaceholder(name, text) {
  const field = document.querySelector(`#spillway-${name} textarea, #spillway-${name} input`);
  if (field && field.placeholder !== text) field.placeholder = text;
}
