import { useMemo } from "react";
import { fetchGpus, fetchLatest } from "../api/fetches";
import { type Polled, usePoll } from "../api/poll";
import type { Gpu } from "../api/types";
import { POWER, TEMPERATURE, UTILISATION } from "./metrics";
import { type GpuNow, gpusNow, type LatestByMetric } from "./shape";

const LATEST_EVERY_MS = 2_000;
const GPUS_EVERY_MS = 15_000;

/** Every GPU, or one host's, with its newest values. */
export function useFleet(hostname?: string): Polled<GpuNow[]> {
  const gpus = usePoll<Gpu[]>("gpus", fetchGpus, GPUS_EVERY_MS);
  const latest = usePoll<LatestByMetric>(
    "latest",
    async (signal) => {
      const [utilisation, temperature, power] = await Promise.all(
        [UTILISATION, TEMPERATURE, POWER].map((metric) => fetchLatest(metric, signal)),
      );
      return { utilisation: utilisation ?? [], temperature: temperature ?? [], power: power ?? [] };
    },
    LATEST_EVERY_MS,
  );
  const data = useMemo(() => {
    if (gpus.data === undefined || latest.data === undefined) return undefined;
    // Beside the whole fleet: the GPUs of a dead host are all as old as each other.
    return gpusNow(gpus.data, latest.data).filter((gpu) => hostname === undefined || gpu.hostname === hostname);
  }, [gpus.data, latest.data, hostname]);
  return { data, error: latest.error ?? gpus.error };
}
