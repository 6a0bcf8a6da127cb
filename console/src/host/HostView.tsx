import { now } from "../api/clock";
import { useRollups } from "../api/series";
import type { Route } from "../app/router";
import { RollupCharts } from "../charts/MetricCharts";
import { RangeChoice } from "../charts/RangeChoice";
import { rangeOf } from "../charts/ranges";
import { EventsCard } from "../events/EventsCard";
import { useEvents } from "../events/useEvents";
import { GpuCell } from "../fleet/GpuCell";
import { power, temperature, utilisation } from "../fleet/gpuColumns";
import { type GpuNow, newestMs } from "../fleet/shape";
import { useFleet } from "../fleet/useFleet";
import { ago } from "../format/times";
import { Card } from "../parts/Card";
import { List } from "../parts/List";
import { GpuLink } from "../parts/links";
import { PageHead } from "../parts/PageHead";
import { State, Waiting } from "../parts/State";

export function HostView({ route }: { route: Route }) {
  const hostname = route.path[1] ?? "";
  const range = rangeOf(route.query);
  const fleet = useFleet(hostname);
  const events = useEvents({ hostname }, range);
  const gpus = fleet.data;
  const newest = gpus === undefined ? undefined : newestMs(gpus);
  const rollups = useRollups({ level: "host", key: hostname }, range, newest);
  if (gpus === undefined) return <Waiting error={fleet.error} />;
  return (
    <>
      <PageHead title={hostname} note={gpus[0]?.model}>
        <RangeChoice range={range} />
      </PageHead>
      {gpus.length === 0 ? (
        <State title="Unknown host">
          No GPU of {hostname} has sent telemetry. <a href="#/fleet">Back to the fleet</a>
        </State>
      ) : (
        <>
          <GpuTable gpus={gpus} />
          <RollupCharts series={rollups.data} range={range} />
          <EventsCard
            events={events}
            severity={route.query["severity"]}
            silent={gpus.filter((gpu) => gpu.silent).length}
          />
        </>
      )}
    </>
  );
}

function GpuTable({ gpus }: { gpus: readonly GpuNow[] }) {
  const name = (gpu: GpuNow) => (
    <>
      <GpuCell gpu={gpu} /> GPU {gpu.gpuId}
      {gpu.silent && <small className="silent-word"> silent</small>}
    </>
  );
  const uuid = (gpu: GpuNow) => (
    <GpuLink uuid={gpu.uuid}>
      <code>{gpu.uuid}</code>
    </GpuLink>
  );
  return (
    <Card title={`${gpus.length} GPUs`}>
      <List
        rows={gpus}
        keyOf={(gpu) => gpu.uuid}
        columns={[
          { title: "GPU", cell: name },
          utilisation,
          temperature,
          power,
          { title: "Last seen", cell: (gpu) => ago(gpu.timeMs, now()), isNumber: true },
          { title: "UUID", cell: uuid },
        ]}
      />
    </Card>
  );
}
