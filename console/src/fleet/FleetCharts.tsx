import { useMemo } from "react";
import type { Polled } from "../api/poll";
import { type Series, useRollups } from "../api/series";
import type { Rollup } from "../api/types";
import { type Range, windowMs } from "../charts/ranges";
import { rollupColumns, withLive } from "../charts/series";
import { type Line, TimeChart } from "../charts/TimeChart";
import { celsius, percent } from "../format/numbers";
import { rememberFleet } from "./history";
import { metricInfo, TEMPERATURE, UTILISATION } from "./metrics";
import type { GpuNow } from "./shape";

const UTILISATION_LINES: readonly Line[] = [
  { label: "mean", colour: "--series-1", fill: true },
  { label: "p95", colour: "--series-2" },
];
const TEMPERATURE_LINES: readonly Line[] = [
  { label: "p95", colour: "--series-2" },
  { label: "max", colour: "--series-3" },
];
// Samples come with each poll; a longer silence is a gap.
const LIVE_GAP_MS = 40_000;

interface FleetChartsProps {
  gpus: readonly GpuNow[];
  range: Range;
  newestMs: number | undefined;
}

export function FleetCharts({ gpus, range, newestMs }: FleetChartsProps) {
  const utilisation = useRollups({ level: "fleet", metric: UTILISATION }, range, newestMs);
  const temperature = useRollups({ level: "fleet", metric: TEMPERATURE }, range, newestMs);
  const live = useMemo(() => rememberFleet(gpus), [gpus]);
  const stepMs = windowMs(range.resolution);
  const utilisationColumns = useMemo(
    () => withLive(rollupColumns(utilisation.data?.rows ?? [], ["mean", "p95"], stepMs), live.utilisation, LIVE_GAP_MS),
    [utilisation.data, live, stepMs],
  );
  const temperatureColumns = useMemo(
    () => withLive(rollupColumns(temperature.data?.rows ?? [], ["p95", "max"], stepMs), live.temperature, LIVE_GAP_MS),
    [temperature.data, live, stepMs],
  );
  const endMs = utilisation.data?.endMs ?? range.endMs ?? newestMs ?? Date.now();
  const times = { startMs: endMs - range.spanMs, endMs };
  return (
    <div className="columns">
      <TimeChart
        title="GPU utilisation"
        group="fleet"
        lines={UTILISATION_LINES}
        columns={utilisationColumns}
        format={percent}
        scale={metricInfo(UTILISATION).scale}
        note={noteOf(utilisation)}
        {...times}
      />
      <TimeChart
        title="GPU temperature"
        group="fleet"
        lines={TEMPERATURE_LINES}
        columns={temperatureColumns}
        format={celsius}
        scale={metricInfo(TEMPERATURE).scale}
        note={noteOf(temperature)}
        {...times}
      />
    </div>
  );
}

function noteOf({ data, error }: Polled<Series<Rollup>>): string | undefined {
  return data === undefined && error === undefined ? "Loading" : undefined;
}
