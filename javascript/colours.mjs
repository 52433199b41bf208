// A colour for each profile, told apart by people who see few colours too; the style sheet holds the values.

const KNOWN = ["dedicated", "medvram", "lowvram", "sequential", "stream", "spill"];

export function profileColour(profile) {
  return `var(--spillway-profile-${KNOWN.includes(profile) ? profile : "other"})`;
}
