/** The status that the pipeline's job writes after each micro-batch, as the API passes it on. */

import { byName } from "../format/names";

export interface PartitionLag {
  name: string;
  records: number;
}

export interface PipelineStatus {
  running: boolean;
  /** The job's own word for what it does, such as "retrying". */
  state: string;
  updatedMs: number | undefined;
  batchId: number | undefined;
  rowsPerSecond: number | undefined;
  lag: number | undefined;
  partitions: PartitionLag[];
  watermarkMs: number | undefined;
  counts: Count[];
  bad: number | undefined;
  badByReason: Count[];
  lastError: { message: string; atMs: number | undefined } | undefined;
}

export type Count = [name: string, records: number];

type Fields = Record<string, unknown>;

/** Tolerant: an older or newer job may leave fields out. */
export function readStatus(answer: unknown): PipelineStatus {
  const fields = fieldsOf(answer);
  const running = fields["running"] === true;
  const counts = countsOf(fields["counts"]);
  return {
    running,
    state: running && typeof fields["state"] === "string" ? fields["state"] : running ? "running" : "stopped",
    updatedMs: time(fields["updated_at"]),
    batchId: number(fields["batch_id"]),
    rowsPerSecond: running ? number(fields["rows_per_second"]) : 0,
    lag: number(fields["lag"]),
    partitions: countsOf(fields["lag_by_partition"])
      .map(([name, records]) => ({ name, records }))
      .sort((left, right) => byName(left.name, right.name)),
    watermarkMs: time(fields["watermark"]),
    counts,
    bad: counts.find(([name]) => name === "bad")?.[1],
    badByReason: countsOf(fields["bad_by_reason"]),
    lastError: errorOf(fields["last_error"]),
  };
}

function errorOf(error: unknown): PipelineStatus["lastError"] {
  const { message, at } = fieldsOf(error);
  return typeof message === "string" ? { message, atMs: time(at) } : undefined;
}

function countsOf(counts: unknown): Count[] {
  return Object.entries(fieldsOf(counts)).flatMap(([name, value]) => {
    const known = number(value);
    return known === undefined ? [] : [[name, known] satisfies Count];
  });
}

function fieldsOf(value: unknown): Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

function number(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}

function time(value: unknown): number | undefined {
  if (typeof value !== "string") return undefined;
  const parsed = Date.parse(value);
  return Number.isNaN(parsed) ? undefined : parsed;
}
