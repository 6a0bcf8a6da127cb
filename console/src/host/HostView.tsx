import { now } from "../api/clock";
import { useRollups } from "../api/series";
import type { Route } from "../app/router";
import { RollupCharts } from "../charts/MetricCharts";
import { RangeChoice } from "../charts/RangeChoice";
import { rangeNamed } from "../charts/ranges";
import { EventsCard } from "../events/EventsCard";
import { useEvents } from "../events/useEvents";
import { GpuCell } from "../fleet/GpuCell";
import { type GpuNow, isSilent, newestMs } from "../fleet/shape";
import { useFleet } from "../fleet/useFleet";
import { celsius, percent, watts } from "../format/numbers";
import { ago } from "../format/times";
import { Card } from "../parts/Card";
import { GpuLink } from "../parts/links";
import { PageHead } from "../parts/PageHead";
import { State, Waiting } from "../parts/State";

export function HostView({ route }: { route: Route }) {
  const hostname = route.path[1] ?? "";
  const range = rangeNamed(route.query["range"]);
  const fleet = useFleet(hostname);
  const events = useEvents({ hostname });
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
          <GpuTable gpus={gpus} newest={newest} />
          <RollupCharts series={rollups.data} range={range} />
          <EventsCard events={events} severity={route.query["severity"]} />
        </>
      )}
    </>
  );
}

function GpuTable({ gpus, newest }: { gpus: readonly GpuNow[]; newest: number | undefined }) {
  return (
    <Card title={`${gpus.length} GPUs`}>
      <table className="list">
        <thead>
          <tr>
            <th scope="col">GPU</th>
            <th scope="col" className="number">
              Utilisation
            </th>
            <th scope="col" className="number">
              Temperature
            </th>
            <th scope="col" className="number">
              Power
            </th>
            <th scope="col" className="number">
              Last seen
            </th>
            <th scope="col">UUID</th>
          </tr>
        </thead>
        <tbody>
          {gpus.map((gpu) => (
            <tr key={gpu.uuid}>
              <th scope="row">
                <GpuCell gpu={gpu} silent={isSilent(gpu, newest)} /> GPU {gpu.gpuId}
              </th>
              <td className="number">{percent(gpu.utilisation)}</td>
              <td className="number">{celsius(gpu.temperature)}</td>
              <td className="number">{watts(gpu.power)}</td>
              <td className="number">{ago(gpu.timeMs, now())}</td>
              <td>
                <GpuLink uuid={gpu.uuid}>
                  <code>{gpu.uuid}</code>
                </GpuLink>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Card>
  );
}
