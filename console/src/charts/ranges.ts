import type { Resolution } from "../api/types";

export interface Range {
  name: string;
  title: string;
  spanMs: number;
  resolution: Resolution;
  pollMs: number;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;

export const RANGES: readonly Range[] = [
  { name: "5m", title: "Last 5 minutes", spanMs: 5 * MINUTE_MS, resolution: "1m", pollMs: 2_000 },
  { name: "15m", title: "Last 15 minutes", spanMs: 15 * MINUTE_MS, resolution: "1m", pollMs: 2_000 },
  { name: "1h", title: "Last hour", spanMs: HOUR_MS, resolution: "1m", pollMs: 2_000 },
  { name: "6h", title: "Last 6 hours", spanMs: 6 * HOUR_MS, resolution: "1m", pollMs: 10_000 },
  { name: "24h", title: "Last 24 hours", spanMs: 24 * HOUR_MS, resolution: "1m", pollMs: 20_000 },
  { name: "7d", title: "Last 7 days", spanMs: 168 * HOUR_MS, resolution: "1h", pollMs: 30_000 },
];

const DEFAULT = RANGES[1] as Range;

export function rangeNamed(name: string | undefined): Range {
  return RANGES.find((range) => range.name === name) ?? DEFAULT;
}

export function windowMs(resolution: Resolution): number {
  return resolution === "1m" ? MINUTE_MS : HOUR_MS;
}

// Data that stopped coming long ago (a replayed file, a stopped pipeline) is looked at where it ended.
const STILL_LIVE_MS = 5 * MINUTE_MS;

/** Where a range ends: now, or at the newest data when that is old. */
export function rangeEnd(newestMs: number | undefined, nowMs: number): number {
  return newestMs !== undefined && nowMs - newestMs > STILL_LIVE_MS ? newestMs : nowMs;
}
