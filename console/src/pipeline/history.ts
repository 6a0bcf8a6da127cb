/** Rows per second and lag as the page saw them: the minutes that the job has not written down yet. */

import type { Sample } from "../charts/series";
import type { PipelineStatus } from "./status";

const KEPT_MS = 5 * 60_000;

let kept: Sample[] = [];

export function remember(status: PipelineStatus): void {
  const timeMs = status.updatedMs;
  const lastMs = kept.at(-1)?.timeMs ?? Number.NEGATIVE_INFINITY;
  if (timeMs === undefined || timeMs <= lastMs) return;
  const recent = kept.filter((sample) => timeMs - sample.timeMs < KEPT_MS);
  kept = [...recent, { timeMs, values: [status.rowsPerSecond, status.lag] }];
}

export function remembered(): readonly Sample[] {
  return kept;
}
