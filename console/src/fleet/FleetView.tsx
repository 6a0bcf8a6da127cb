import { useMemo } from "react";
import { useRollups } from "../api/series";
import type { Route } from "../app/router";
import { RangeChoice } from "../charts/RangeChoice";
import { rangeOf } from "../charts/ranges";
import { EventsCard } from "../events/EventsCard";
import { useEvents } from "../events/useEvents";
import { PageHead } from "../parts/PageHead";
import { Waiting } from "../parts/State";
import { PipelinePanel } from "../pipeline/PipelinePanel";
import { usePipeline } from "../pipeline/usePipeline";
import { Extremes } from "./Extremes";
import { FleetCharts } from "./FleetCharts";
import { HeatMap, heatRange } from "./HeatMap";
import { Kpis } from "./Kpis";
import { UTILISATION } from "./metrics";
import { NoData } from "./NoData";
import { byHost, newestMs } from "./shape";
import { useFleet } from "./useFleet";

export function FleetView({ route }: { route: Route }) {
  const range = rangeOf(route.query);
  const fleet = useFleet();
  const pipeline = usePipeline();
  const events = useEvents({}, range);
  const gpus = fleet.data;
  const newest = useMemo(() => (gpus === undefined ? undefined : newestMs(gpus)), [gpus]);
  const hosts = useMemo(() => byHost(gpus ?? []), [gpus]);
  const strips = heatRange(range);
  const heat = useRollups({ level: "host", metric: UTILISATION }, strips, newest);

  if (gpus === undefined) return <Waiting error={fleet.error} />;
  if (gpus.length === 0) return <NoData pipeline={pipeline.data} />;
  const silent = gpus.filter((gpu) => gpu.silent).length;
  return (
    <>
      <PageHead title="Fleet">
        <RangeChoice range={range} />
      </PageHead>
      <Kpis gpus={gpus} hosts={hosts.length} pipeline={pipeline.data} events={events.data} />
      <FleetCharts gpus={gpus} range={range} newestMs={newest} />
      <div className="columns wide-left">
        <div className="stack">
          <HeatMap hosts={hosts} history={heat.data} range={strips} />
          <EventsCard events={events} severity={route.query["severity"]} silent={silent} />
        </div>
        <div className="stack">
          <PipelinePanel pipeline={pipeline} range={range} />
          <Extremes gpus={gpus} />
        </div>
      </div>
    </>
  );
}
