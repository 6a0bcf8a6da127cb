import type { Resolution } from "../api/types";

export interface Range {
  name: string;
  title: string;
  spanMs: number;
  resolution: Resolution;
  pollMs: number;
  /** Where a part of the past that was zoomed into ends; a named range moves with the time. */
  endMs?: number;
}

type Query = Readonly<Record<string, string>>;

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

export const RANGES: readonly Range[] = [
  { name: "5m", title: "Last 5 minutes", spanMs: 5 * MINUTE_MS, resolution: "1m", pollMs: 2_000 },
  { name: "15m", title: "Last 15 minutes", spanMs: 15 * MINUTE_MS, resolution: "1m", pollMs: 2_000 },
  { name: "1h", title: "Last hour", spanMs: HOUR_MS, resolution: "1m", pollMs: 2_000 },
  { name: "6h", title: "Last 6 hours", spanMs: 6 * HOUR_MS, resolution: "1m", pollMs: 10_000 },
  { name: "24h", title: "Last 24 hours", spanMs: DAY_MS, resolution: "1m", pollMs: 20_000 },
  { name: "7d", title: "Last 7 days", spanMs: 7 * DAY_MS, resolution: "1h", pollMs: 30_000 },
];

const DEFAULT = RANGES[1] as Range;
const SHORTEST_ZOOM_MS = MINUTE_MS;

/** The range that an address names: one of the list, or a stretch from one time to another. */
export function rangeOf(query: Query): Range {
  const fromMs = Date.parse(query["from"] ?? "");
  const toMs = Date.parse(query["to"] ?? "");
  if (fromMs < toMs) return zoomed(fromMs, toMs);
  return RANGES.find((range) => range.name === query["range"]) ?? DEFAULT;
}

function zoomed(fromMs: number, toMs: number): Range {
  const spanMs = toMs - fromMs;
  const resolution = spanMs <= DAY_MS ? "1m" : "1h";
  return { name: `${fromMs}-${toMs}`, title: "Zoomed", spanMs, resolution, pollMs: 10_000, endMs: toMs };
}

/** What an address says for a stretch that somebody drew over a chart; at least a minute, around its middle. */
export function zoomQuery(fromMs: number, toMs: number): Record<string, string> {
  const middle = (fromMs + toMs) / 2;
  const half = Math.max(toMs - fromMs, SHORTEST_ZOOM_MS) / 2;
  const written = (timeMs: number) => new Date(Math.round(timeMs / 1_000) * 1_000).toISOString().replace(".000Z", "Z");
  return { from: written(middle - half), to: written(middle + half) };
}

/** The words of an address that belong to the range, for links to other views. */
export function rangeWords(query: Query): Record<string, string> {
  return Object.fromEntries(Object.entries(query).filter(([name]) => ["range", "from", "to"].includes(name)));
}

export function windowMs(resolution: Resolution): number {
  return resolution === "1m" ? MINUTE_MS : HOUR_MS;
}

// Data that stopped coming long ago (a replayed file, a stopped pipeline) is looked at where it ended.
const STILL_LIVE_MS = 5 * MINUTE_MS;

/** Where a range ends: where it was drawn, now, or at the newest data when that is old. */
export function rangeEnd(newestMs: number | undefined, nowMs: number, range?: Range): number {
  if (range?.endMs !== undefined) return range.endMs;
  return newestMs !== undefined && nowMs - newestMs > STILL_LIVE_MS ? newestMs : nowMs;
}
