import { now } from "../api/clock";
import { useRollups, useTelemetry } from "../api/series";
import type { Route } from "../app/router";
import { PointCharts, RollupCharts } from "../charts/MetricCharts";
import { RangeChoice } from "../charts/RangeChoice";
import { type Range, rangeOf } from "../charts/ranges";
import { EventsCard } from "../events/EventsCard";
import { useEvents } from "../events/useEvents";
import type { GpuNow } from "../fleet/shape";
import { useFleet } from "../fleet/useFleet";
import { celsius, percent, watts } from "../format/numbers";
import { ago } from "../format/times";
import { Kpi } from "../parts/Kpi";
import { HostLink } from "../parts/links";
import { PageHead } from "../parts/PageHead";
import { State, Waiting } from "../parts/State";

// Short enough to draw every point.
const LONGEST_RAW_MS = 5 * 60_000;

export function GpuView({ route }: { route: Route }) {
  const uuid = route.path[1] ?? "";
  const range = rangeOf(route.query);
  const fleet = useFleet();
  const events = useEvents({ uuid }, range);
  const gpu = fleet.data?.find((one) => one.uuid === uuid);
  if (fleet.data === undefined) return <Waiting error={fleet.error} />;
  if (gpu === undefined) {
    return (
      <>
        <PageHead title="GPU" />
        <State title="Unknown GPU">
          No GPU with uuid {uuid} has sent telemetry. <a href="#/fleet">Back to the fleet</a>
        </State>
      </>
    );
  }
  return (
    <>
      <PageHead title={`${gpu.hostname} / GPU ${gpu.gpuId}`} note={gpu.model}>
        <RangeChoice range={range} />
      </PageHead>
      <Now gpu={gpu} />
      {range.spanMs <= LONGEST_RAW_MS ? <Points gpu={gpu} range={range} /> : <Rollups gpu={gpu} range={range} />}
      <EventsCard events={events} severity={route.query["severity"]} silent={gpu.silent ? 1 : 0} />
    </>
  );
}

function Now({ gpu }: { gpu: GpuNow }) {
  return (
    <dl className="kpis">
      <Kpi label="Utilisation" value={percent(gpu.utilisation)} />
      <Kpi label="Temperature" value={celsius(gpu.temperature)} />
      <Kpi label="Power" value={watts(gpu.power)} />
      <Kpi
        label="Last seen"
        value={ago(gpu.timeMs, now())}
        note={gpu.silent ? "silent" : undefined}
        tone={gpu.silent ? "critical" : undefined}
        title={gpu.silent ? "Nothing came from this GPU for a minute, while others reported" : undefined}
      />
      <Kpi label="Host" value={<HostLink hostname={gpu.hostname} />} />
      <Kpi label="UUID" value={<code>{gpu.uuid}</code>} wide />
    </dl>
  );
}

function Points({ gpu, range }: { gpu: GpuNow; range: Range }) {
  return <PointCharts series={useTelemetry(gpu.uuid, range, gpu.timeMs).data} range={range} />;
}

function Rollups({ gpu, range }: { gpu: GpuNow; range: Range }) {
  return <RollupCharts series={useRollups({ level: "gpu", key: gpu.uuid }, range, gpu.timeMs).data} range={range} />;
}
