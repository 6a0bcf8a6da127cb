/** Numbers as people read them; "–" where there is none. */

export const NOTHING = "–";

export function fixed(value: number | undefined | null, digits = 0): string {
  return isNumber(value) ? value.toLocaleString("en-US", fraction(digits)) : NOTHING;
}

/** 950, 12.3k, 4.57M: at most four characters of digits. */
export function compact(value: number | undefined | null): string {
  if (!isNumber(value)) return NOTHING;
  const size = Math.abs(value);
  if (size < 1_000) return fixed(value, size < 10 && !Number.isInteger(value) ? 1 : 0);
  const [divisor, letter] = size < 999_500 ? [1e3, "k"] : size < 999_500_000 ? [1e6, "M"] : [1e9, "G"];
  const scaled = value / divisor;
  return `${scaled.toFixed(Math.abs(scaled) < 10 ? 2 : Math.abs(scaled) < 100 ? 1 : 0)}${letter}`;
}

export function percent(value: number | undefined | null): string {
  return isNumber(value) ? `${Math.round(value)} %` : NOTHING;
}

export function celsius(value: number | undefined | null): string {
  return isNumber(value) ? `${Math.round(value)} °C` : NOTHING;
}

export function watts(value: number | undefined | null): string {
  return isNumber(value) ? `${fixed(value)} W` : NOTHING;
}

/** For an axis: the value alone, with a unit only where that is a letter or two. */
export function axisLabel(value: number, unit: string): string {
  const number = Math.abs(value) >= 10_000 ? compact(value).replace(/\.0+(?=\D)/, "") : value.toLocaleString("en-US");
  return unit.length > 0 && unit.length < 3 ? `${number} ${unit}` : number;
}

/** The value with its unit, as precise as its size makes useful. */
export function withUnit(value: number | undefined | null, unit: string): string {
  if (!isNumber(value)) return NOTHING;
  const size = Math.abs(value);
  const digits = Number.isInteger(value) || size >= 100 ? 0 : size >= 1 ? 1 : 2;
  return unit ? `${fixed(value, digits)} ${unit}` : fixed(value, digits);
}

function isNumber(value: number | undefined | null): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

function fraction(digits: number): Intl.NumberFormatOptions {
  return { minimumFractionDigits: digits, maximumFractionDigits: digits };
}
