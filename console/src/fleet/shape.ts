/** From the API's rows to what the fleet view draws. Pure. */

import type { Gpu, Latest } from "../api/types";
import { byName } from "../format/names";

/** One GPU as it is now. A value is undefined when the API has none. */
export interface GpuNow {
  uuid: string;
  hostname: string;
  gpuId: string;
  model: string;
  utilisation: number | undefined;
  temperature: number | undefined;
  power: number | undefined;
  /** When its newest value was measured. */
  timeMs: number | undefined;
  /** Nothing came from it while others reported: it has no values then, for the last ones say nothing of now. */
  silent: boolean;
}

export interface HostNow {
  hostname: string;
  gpus: GpuNow[];
  utilisation: number | undefined;
}

export interface LatestByMetric {
  utilisation: Latest[];
  temperature: Latest[];
  power: Latest[];
}

export function gpusNow(gpus: readonly Gpu[], latest: LatestByMetric): GpuNow[] {
  const found = new Map<string, GpuNow>();
  for (const gpu of gpus) found.set(gpu.uuid, blank(gpu.uuid, gpu.Hostname, gpu.gpu_id, gpu.modelName));
  for (const quantity of ["utilisation", "temperature", "power"] as const) {
    for (const row of latest[quantity]) {
      // A GPU can report before the slower list of GPUs knows it.
      const gpu = found.get(row.uuid) ?? blank(row.uuid, row.hostname, "", "");
      found.set(row.uuid, gpu);
      gpu[quantity] = row.value;
      const timeMs = Date.parse(row.time);
      gpu.timeMs = gpu.timeMs === undefined ? timeMs : Math.max(gpu.timeMs, timeMs);
    }
  }
  const newest = newestMs([...found.values()]);
  return [...found.values()].map((gpu) => (isSilent(gpu, newest) ? hushed(gpu) : gpu)).sort(
    (left, right) =>
      byName(left.hostname, right.hostname) || byName(left.gpuId, right.gpuId) || byName(left.uuid, right.uuid),
  );
}

function blank(uuid: string, hostname: string, gpuId: string, model: string): GpuNow {
  return { uuid, hostname, gpuId, model, timeMs: undefined, silent: false, ...UNKNOWN };
}

const UNKNOWN = { utilisation: undefined, temperature: undefined, power: undefined };

function hushed(gpu: GpuNow): GpuNow {
  return { ...gpu, ...UNKNOWN, silent: true };
}

export function byHost(gpus: readonly GpuNow[]): HostNow[] {
  const groups = new Map<string, GpuNow[]>();
  for (const gpu of gpus) {
    const group = groups.get(gpu.hostname);
    if (group === undefined) groups.set(gpu.hostname, [gpu]);
    else group.push(gpu);
  }
  return [...groups].map(([hostname, members]) => ({
    hostname,
    gpus: members,
    utilisation: mean(present(members, "utilisation")),
  }));
}

export function present(gpus: readonly GpuNow[], quantity: "utilisation" | "temperature" | "power"): number[] {
  return gpus.flatMap((gpu) => gpu[quantity] ?? []);
}

export function hottest(gpus: readonly GpuNow[], count: number): GpuNow[] {
  return top(gpus, count, (gpu) => gpu.temperature);
}

export function idlest(gpus: readonly GpuNow[], count: number): GpuNow[] {
  return top(gpus, count, (gpu) => (gpu.utilisation === undefined ? undefined : -gpu.utilisation));
}

function top(gpus: readonly GpuNow[], count: number, rank: (gpu: GpuNow) => number | undefined): GpuNow[] {
  return gpus
    .filter((gpu) => rank(gpu) !== undefined)
    .sort((left, right) => (rank(right) ?? 0) - (rank(left) ?? 0))
    .slice(0, count);
}

export function newestMs(gpus: readonly GpuNow[]): number | undefined {
  return largest(gpus.flatMap((gpu) => gpu.timeMs ?? []));
}

/** How old each GPU's newest value is. */
export function ages(gpus: readonly GpuNow[], nowMs: number): number[] {
  return gpus.flatMap((gpu) => (gpu.timeMs === undefined ? [] : Math.max(0, nowMs - gpu.timeMs)));
}

/** Older than `ms` beside the fleet's newest value: it has fallen silent. */
function isSilent(gpu: GpuNow, newest: number | undefined, ms = 60_000): boolean {
  return gpu.timeMs === undefined || (newest !== undefined && newest - gpu.timeMs > ms);
}

export function mean(values: readonly number[]): number | undefined {
  return values.length === 0 ? undefined : values.reduce((sum, value) => sum + value, 0) / values.length;
}

export function largest(values: readonly number[]): number | undefined {
  return values.length === 0 ? undefined : values.reduce((most, value) => Math.max(most, value));
}

/** The nearest-rank percentile: always one of the values. */
export function percentile(values: readonly number[], fraction: number): number | undefined {
  if (values.length === 0) return undefined;
  const sorted = [...values].sort((left, right) => left - right);
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(fraction * sorted.length) - 1))];
}
