// The texts that a PNG file carries before its pixels (tEXt and iTXt chunks; PNG specification, chapter 11.3.4).

const SIGNATURE_BYTES = 8;
const MOST_BYTES = 1 << 20;

function textOf(kind, data) {
  const end = data.indexOf(0);
  const key = new TextDecoder("latin1").decode(data.subarray(0, end));
  if (kind === "tEXt") return [key, new TextDecoder("latin1").decode(data.subarray(end + 1))];
  if (data[end + 1] !== 0) return [key, ""]; // compressed
  const language = data.indexOf(0, end + 3);
  const translated = data.indexOf(0, language + 1);
  return [key, new TextDecoder().decode(data.subarray(translated + 1))];
}

export function readTexts(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const texts = {};
  let at = SIGNATURE_BYTES;
  while (at + 8 <= bytes.length) {
    const length = view.getUint32(at);
    const kind = String.fromCharCode(...bytes.subarray(at + 4, at + 8));
    if (kind === "IDAT" || kind === "IEND") return { texts, whole: true };
    if (at + 12 + length > bytes.length) break;
    if (kind === "tEXt" || kind === "iTXt") {
      const [key, text] = textOf(kind, bytes.subarray(at + 8, at + 8 + length));
      texts[key] = text;
    }
    at += 12 + length;
  }
  return { texts, whole: false };
}

// Reads no more of the file than stands before its pixels.
export async function fetchTexts(url) {
  const response = await fetch(url, { cache: "force-cache" });
  if (!response.ok || !response.body) return {};
  const reader = response.body.getReader();
  let bytes = new Uint8Array(0);
  let found = { texts: {}, whole: false };
  while (!found.whole && bytes.length < MOST_BYTES) {
    const { done, value } = await reader.read();
    if (done) break;
    const longer = new Uint8Array(bytes.length + value.length);
    longer.set(bytes);
    longer.set(value, bytes.length);
    bytes = longer;
    found = readTexts(bytes);
  }
  reader.cancel().catch(() => null);
  return found.texts;
}
