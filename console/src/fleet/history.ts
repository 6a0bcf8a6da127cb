import type { Sample } from "../charts/series";
import { type GpuNow, largest, mean, newestMs, percentile, present } from "./shape";

const KEPT_MS = 5 * 60_000;

export interface LiveSamples {
  /** Mean and p95 of utilisation. */
  utilisation: Sample[];
  /** p95 and maximum of temperature. */
  temperature: Sample[];
}

let kept: LiveSamples = { utilisation: [], temperature: [] };

/** What the page saw since it was opened, with these values added: it draws the minutes that have no rollup yet. */
export function rememberFleet(gpus: readonly GpuNow[]): LiveSamples {
  const timeMs = newestMs(gpus);
  const lastMs = kept.utilisation.at(-1)?.timeMs ?? Number.NEGATIVE_INFINITY;
  if (timeMs !== undefined && timeMs > lastMs) {
    const utilisation = present(gpus, "utilisation");
    const temperature = present(gpus, "temperature");
    const recent = (samples: Sample[]) => samples.filter((sample) => timeMs - sample.timeMs < KEPT_MS);
    kept = {
      utilisation: [
        ...recent(kept.utilisation),
        { timeMs, values: [mean(utilisation), percentile(utilisation, 0.95)] },
      ],
      temperature: [
        ...recent(kept.temperature),
        { timeMs, values: [percentile(temperature, 0.95), largest(temperature)] },
      ],
    };
  }
  return kept;
}
