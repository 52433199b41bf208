// The size, the steps and the batch that are set now: in the host's own fields where it has them, else in the panel's.

const OWN = { width: "spillway-width", height: "spillway-height", steps: "spillway-steps", batch: "spillway-batch-size" };

function hosts(tab) {
  return { width: `${tab}_width`, height: `${tab}_height`, steps: `${tab}_steps`, batch: `${tab}_batch_size` };
}

function places() {
  if (document.getElementById(OWN.width)) return OWN;
  const other = document.getElementById("img2img_width");
  return hosts(other && other.offsetParent !== null ? "img2img" : "txt2img");
}

function value(id, fallback) {
  const number = Number(document.querySelector(`#${id} input`)?.value);
  return Number.isInteger(number) && number > 0 ? number : fallback;
}

export function requestedSize() {
  const { width, height, steps, batch } = places();
  return { width: value(width, 512), height: value(height, 512), steps: value(steps, 20), batch: value(batch, 1) };
}
