/** One function per list of the query API; each follows `next_cursor` to the end. */

import { get, type Query } from "./client";
import type {
  EventPage,
  Gpu,
  GpuPage,
  HealthEvent,
  JobMinute,
  Latest,
  LatestPage,
  Level,
  Page,
  Point,
  Resolution,
  Rollup,
  RollupPage,
  TelemetryPage,
} from "./types";

const PAGE_ROWS = 5_000;
// The newest values come in one answer, without a cursor; this is the most that the API gives.
const LATEST_ROWS = 10_000;
// A view that needs more than this draws no better for it.
const MOST_PAGES = 20;

async function all<P extends Page, T>(
  path: string,
  query: Query,
  rows: (page: P) => T[],
  signal: AbortSignal,
): Promise<T[]> {
  const found: T[] = [];
  let cursor: string | undefined;
  for (let pages = 0; pages < MOST_PAGES; pages += 1) {
    const page = await get<P>(path, { limit: PAGE_ROWS, ...query, cursor }, signal);
    found.push(...rows(page));
    if (!page.next_cursor) break;
    cursor = page.next_cursor;
  }
  return found;
}

export function fetchGpus(signal: AbortSignal): Promise<Gpu[]> {
  return all<GpuPage, Gpu>("api/v1/gpus", {}, (page) => page.gpus, signal);
}

export function fetchLatest(metric: string, signal: AbortSignal): Promise<Latest[]> {
  return all<LatestPage, Latest>("api/v1/latest", { metric, limit: LATEST_ROWS }, (page) => page.latest, signal);
}

export interface RollupQuery {
  resolution: Resolution;
  level: Level;
  key?: string;
  metric?: string;
}

export function fetchRollups(
  query: RollupQuery,
  startMs: number,
  endMs: number,
  signal: AbortSignal,
): Promise<Rollup[]> {
  const times = { start_time: rfc3339(startMs), end_time: rfc3339(endMs) };
  return all<RollupPage, Rollup>("api/v1/rollups", { ...query, ...times }, (page) => page.rollups, signal);
}

export function fetchTelemetry(
  uuid: string,
  startMs: number,
  endMs: number,
  signal: AbortSignal,
): Promise<Point[]> {
  const path = `api/v1/gpus/${encodeURIComponent(uuid)}/telemetry`;
  const times = { start_time: rfc3339(startMs), end_time: rfc3339(endMs) };
  return all<TelemetryPage, Point>(path, times, (page) => page.data, signal);
}

export interface EventQuery {
  uuid?: string | undefined;
  hostname?: string | undefined;
}

export interface EventTimes {
  status: "open" | "closed";
  start_time?: string;
  end_time?: string;
}

/** The newest `limit` events; further pages are not followed, a list is read from its top. */
export async function fetchEvents(query: EventQuery & EventTimes, limit: number, signal: AbortSignal): Promise<HealthEvent[]> {
  const page = await get<EventPage>("api/v1/events", { ...query, limit }, signal);
  return page.events;
}

export async function fetchHistory(startMs: number, endMs: number, signal: AbortSignal): Promise<JobMinute[]> {
  const times = { start_time: rfc3339(startMs), end_time: rfc3339(endMs) };
  return (await get<{ history: JobMinute[] }>("api/v1/pipeline/history", times, signal)).history;
}

export function rfc3339(timeMs: number): string {
  return new Date(timeMs).toISOString();
}
