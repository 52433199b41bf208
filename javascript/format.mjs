// Figures as people read them, the same way the Python side writes them.

const MIB = 2 ** 20;
const GIB = 2 ** 30;

// How to write all figures of one bar, so that they can be compared: in GiB, or in MiB where the whole is below one.
export function scaleFor(wholeBytes) {
  const small = wholeBytes < GIB;
  return {
    unit: small ? "MiB" : "GiB",
    write: (count) => (small ? String(Math.round(count / MIB)) : (count / GIB).toFixed(1)),
  };
}

export function bytes(count, unknown) {
  if (count === null || count === undefined) return unknown;
  if (count === 0 || Math.abs(count) >= 0.1 * GIB) return `${(count / GIB).toFixed(1)} GiB`;
  return Math.abs(count) >= MIB ? `${Math.round(count / MIB)} MiB` : `${Math.round(count / 1024)} KiB`;
}

export function seconds(value, unknown) {
  if (value === null || value === undefined) return unknown;
  if (value < 60) return `${value.toFixed(2)} s`;
  return minutes(value);
}

// For a time that is still to come, hundredths would only flicker.
export function roundSeconds(value) {
  return value < 60 ? `${Math.ceil(value)} s` : minutes(value);
}

function minutes(value) {
  const whole = Math.round(value);
  return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
}

export function clock(unixSeconds, language) {
  const moment = new Date(unixSeconds * 1000);
  const today = moment.toDateString() === new Date().toDateString();
  const options = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
  return today
    ? moment.toLocaleTimeString(language, options)
    : moment.toLocaleString(language, { month: "short", day: "numeric", ...options });
}
