// gradio's own fields: what is set in them, and their words in the reader's language.

const FIELDS = [
  "prompt", "negative-prompt", "width", "height", "steps", "sampler", "guidance", "seed", "batch-size", "batch-count",
];
const BUTTONS = ["generate", "stop"];

function value(id, fallback) {
  const number = Number(document.querySelector(`#${id} input`)?.value);
  return Number.isInteger(number) && number > 0 ? number : fallback;
}

export function requestedSize() {
  return {
    width: value("spillway-width", 512),
    height: value("spillway-height", 512),
    steps: value("spillway-steps", 20),
    batch: value("spillway-batch-size", 1),
  };
}

export function onSizeChange(act) {
  let timer = null;
  document.addEventListener("input", (event) => {
    if (!event.target.closest?.("#spillway-width, #spillway-height, #spillway-steps, #spillway-batch-size")) return;
    clearTimeout(timer);
    timer = setTimeout(act, 400);
  });
}

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
