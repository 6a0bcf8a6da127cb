/** Rows to columns: what uPlot draws. Times in seconds, gaps as null. Pure. */

import type { JobMinute, Point, Rollup } from "../api/types";

export type Column = (number | null)[];

/** The first column is time, in seconds and ascending; the others follow the order asked for. */
export interface Columns {
  times: number[];
  values: Column[];
}

export type Statistic = "min" | "max" | "mean" | "p95";

export interface Sample {
  timeMs: number;
  values: (number | undefined)[];
}

/** One row per window; a window stands at its middle. A missing window breaks the line. */
export function rollupColumns(
  rollups: readonly Rollup[],
  statistics: readonly Statistic[],
  windowMs: number,
): Columns {
  const rows = rollups
    .map((rollup) => ({
      timeMs: Date.parse(rollup.window_start) + windowMs / 2,
      values: statistics.map((statistic) => rollup[statistic]),
    }))
    .sort((left, right) => left.timeMs - right.timeMs);
  return columns(rows, statistics.length, windowMs * 1.5);
}

/** The window's rollups, then what the page itself saw after the last of them. */
export function withLive(past: Columns, live: readonly Sample[], gapMs: number): Columns {
  const lastMs = (past.times.at(-1) ?? Number.NEGATIVE_INFINITY) * 1_000;
  const tail = columns(
    live.filter((sample) => sample.timeMs > lastMs),
    past.values.length,
    gapMs,
  );
  return {
    times: [...past.times, ...tail.times],
    values: past.values.map((column, index) => [...column, ...(tail.values[index] ?? [])]),
  };
}

const MINUTE_MS = 60_000;

/** Rows a second and lag, a row per minute; a minute stands at its middle. */
export function minuteColumns(minutes: readonly JobMinute[]): Columns {
  const rows = minutes.map((minute) => ({
    timeMs: Date.parse(minute.time) + MINUTE_MS / 2,
    values: [minute.rows_per_second, minute.lag],
  }));
  return columns(rows, 2, 1.5 * MINUTE_MS);
}

export function pointColumns(points: readonly Point[], gapMs: number): Columns {
  const rows = points
    .map((point) => ({ timeMs: Date.parse(point.time), values: [point.value] }))
    .sort((left, right) => left.timeMs - right.timeMs);
  return columns(rows, 1, gapMs);
}

function columns(rows: readonly Sample[], width: number, gapMs: number): Columns {
  const times: number[] = [];
  const values: Column[] = Array.from({ length: width }, () => []);
  let previousMs: number | undefined;
  for (const row of rows) {
    if (previousMs !== undefined && row.timeMs - previousMs > gapMs) {
      times.push((previousMs + row.timeMs) / 2_000);
      for (const column of values) column.push(null);
    }
    times.push(row.timeMs / 1_000);
    values.forEach((column, index) => column.push(row.values[index] ?? null));
    previousMs = row.timeMs;
  }
  return { times, values };
}

/** The same with every value in a unit of another size. */
export function inUnitsOf(size: number, { times, values }: Columns): Columns {
  if (size === 1) return { times, values };
  return { times, values: values.map((column) => column.map((value) => (value === null ? null : value / size))) };
}

/** The last value of a column, looking past gaps. */
export function lastValue(column: Column | undefined): number | undefined {
  return column?.findLast((value) => value !== null) ?? undefined;
}
