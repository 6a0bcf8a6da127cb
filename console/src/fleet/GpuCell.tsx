import { celsius, percent } from "../format/numbers";
import { GpuLink } from "../parts/links";
import { heatStep } from "./heat";
import type { GpuNow } from "./shape";

/** A GPU as one coloured square that leads to its details. */
export function GpuCell({ gpu }: { gpu: GpuNow }) {
  const known = gpu.utilisation !== undefined;
  const words = `${gpu.hostname} GPU ${gpu.gpuId}: ${
    gpu.silent ? "silent" : `${percent(gpu.utilisation)}, ${celsius(gpu.temperature)}`
  }`;
  return (
    <GpuLink
      uuid={gpu.uuid}
      label={words}
      className={`cell ${gpu.silent ? "silent" : ""}`}
      style={known ? { background: `var(--heat-${heatStep(gpu.utilisation ?? 0)})` } : undefined}
    />
  );
}
