// One sentence for a person, and the technical line under it, which can be copied.

import { el } from "./dom.mjs";

export function errorBox(error, t) {
  return el(
    "div",
    { class: "spillway-message", "data-kind": "error", role: "alert" },
    el("p", { class: "spillway-sentence" }, error.message),
    error.detail ? el("code", { class: "spillway-detail" }, error.detail) : null,
    el("button", { type: "button", class: "spillway-copy" }, t("error.copy")),
  );
}

export function createNotice(t) {
  const element = el("div", { class: "spillway-notice", "aria-live": "polite" });
  return {
    element,
    say: (text) => element.replaceChildren(text),
    fail: (error) => element.replaceChildren(errorBox(error, t)),
    clear: () => element.replaceChildren(),
  };
}

// One listener for every copy button, those in gradio's own markup too.
export function listenForCopies(t) {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.(".spillway-copy");
    if (!button) return;
    const lines = button.closest(".spillway-message").querySelectorAll(".spillway-sentence, .spillway-detail");
    await copy([...lines].map((line) => line.innerText).join("\n"));
    button.textContent = t("error.copied");
    setTimeout(() => { button.textContent = t("error.copy"); }, 1500);
  });
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without permission, or over plain http from another machine, the old way still works.
    const area = el("textarea", { class: "spillway-offscreen" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
