/** What the query API answers, field by field. Times are RFC 3339 strings. */

export interface Page {
  count: number;
  next_cursor?: string | null;
}

export interface Gpu {
  uuid: string;
  gpu_id: string;
  device: string;
  modelName: string;
  Hostname: string;
  last_seen: string;
}

export interface GpuPage extends Page {
  gpus: Gpu[];
}

export interface Latest {
  uuid: string;
  hostname: string;
  metric: string;
  value: number;
  time: string;
}

export interface LatestPage extends Page {
  latest: Latest[];
}

export type Resolution = "1m" | "1h";
export type Level = "gpu" | "host" | "fleet";

export interface Rollup {
  resolution: Resolution;
  window_start: string;
  level: Level;
  key: string;
  hostname: string;
  metric: string;
  min: number;
  max: number;
  mean: number;
  p95: number;
  count: number;
}

export interface RollupPage extends Page {
  rollups: Rollup[];
}

export interface Point {
  metric: string;
  value: number;
  time: string;
}

export interface TelemetryPage extends Page {
  gpu_id: string;
  data: Point[];
}

export const SEVERITIES = ["critical", "warning", "info"] as const;
export type Severity = (typeof SEVERITIES)[number];

export interface HealthEvent {
  event_id: string;
  kind: string;
  severity: Severity;
  uuid: string;
  hostname: string;
  start: string;
  end: string;
  status: string;
  message: string;
  evidence: unknown;
}

export interface EventPage extends Page {
  events: HealthEvent[];
}

/** How the pipeline's job did in one minute. */
export interface JobMinute {
  time: string;
  rows_per_second: number;
  lag: number;
}
