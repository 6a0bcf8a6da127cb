/** GPU uuids are long and alike; the first group tells them apart on a screen. */
export function shortUuid(uuid: string): string {
  const bare = uuid.replace(/^GPU-/i, "");
  return bare.length > 8 ? bare.slice(0, 8) : bare;
}

/** `thermal_excursion` -> "Thermal excursion". */
export function kindTitle(kind: string): string {
  const words = kind.replace(/[_-]+/g, " ").trim();
  const capital = words.charAt(0).toUpperCase() + words.slice(1);
  return capital.replace(/\bxid\b/i, "XID").replace(/\bgpu\b/i, "GPU");
}

const collator = new Intl.Collator("en", { numeric: true });

/** node-2 before node-10. */
export function byName(left: string, right: string): number {
  return collator.compare(left, right);
}
