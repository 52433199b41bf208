// Building nodes. Every text goes in as a text node: a prompt or a model's name is never read as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Writes only what changed, so that a screen reader and our own observers are left in peace.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, String(value));
  }
}

export function card(title, { id, aside = null, level = "h2" } = {}, ...children) {
  const heading = el(level, { class: "spillway-title", id: `spillway-${id}-title` }, title);
  return el(
    "section",
    { class: "spillway-card", "aria-labelledby": heading.id },
    el("header", { class: "spillway-card-head" }, heading, aside),
    ...children,
  );
}
