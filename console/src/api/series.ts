/** Polled series: rollups of any level, and one GPU's raw points. */

import { rangeEnd, type Range, windowMs } from "../charts/ranges";
import { now } from "./clock";
import { fetchRollups, fetchTelemetry, type RollupQuery } from "./fetches";
import { type Polled, usePoll } from "./poll";
import { loadTail, type Tail, type TailSource } from "./tail";
import type { Point, Rollup } from "./types";

export interface Series<T> {
  rows: T[];
  startMs: number;
  endMs: number;
}

type Followed<T> = Tail<T> & { series: Series<T> };

/** `newestMs`: the newest data's time, which ends the range when it is old. */
export function useRollups(
  query: Omit<RollupQuery, "resolution">,
  range: Range,
  newestMs: number | undefined,
): Polled<Series<Rollup>> {
  const key = ["rollups", query.level, query.key, query.metric, range.name].join("|");
  const stepMs = windowMs(range.resolution);
  return useSeries<Rollup>(key, range, newestMs, stepMs, (signal) => ({
    load: (startMs, endMs) => fetchRollups({ ...query, resolution: range.resolution }, startMs, endMs, signal),
    identity: (row) => `${row.key}|${row.metric}|${row.window_start}`,
    timeMs: (row) => Date.parse(row.window_start),
    overlapMs: 3 * stepMs,
  }));
}

export function useTelemetry(uuid: string, range: Range, newestMs: number | undefined): Polled<Series<Point>> {
  return useSeries<Point>(`telemetry|${uuid}|${range.name}`, range, newestMs, 0, (signal) => ({
    load: (startMs, endMs) => fetchTelemetry(uuid, startMs, endMs, signal),
    identity: (row) => `${row.metric}|${row.time}`,
    timeMs: (row) => Date.parse(row.time),
    overlapMs: 30_000,
  }));
}

function useSeries<T>(
  key: string,
  range: Range,
  newestMs: number | undefined,
  stepMs: number,
  source: (signal: AbortSignal) => TailSource<T>,
): Polled<Series<T>> {
  const polled = usePoll<Followed<T>>(
    key,
    async (signal, previous) => {
      const endMs = rangeEnd(newestMs, now(), range);
      const startMs = endMs - range.spanMs;
      // The window that the range begins in belongs to it.
      const tail = await loadTail(source(signal), startMs - stepMs, endMs, previous);
      return { ...tail, series: { rows: [...tail.rows.values()], startMs, endMs } };
    },
    range.pollMs,
  );
  return { data: polled.data?.series, error: polled.error };
}
