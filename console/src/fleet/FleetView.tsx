import { useMemo } from "react";
import { useRollups } from "../api/series";
import type { Route } from "../app/router";
import { RangeChoice } from "../charts/RangeChoice";
import { rangeNamed } from "../charts/ranges";
import { EventsCard } from "../events/EventsCard";
import { useEvents } from "../events/useEvents";
import { PageHead } from "../parts/PageHead";
import { Waiting } from "../parts/State";
import { PipelinePanel } from "../pipeline/PipelinePanel";
import { usePipeline } from "../pipeline/usePipeline";
import { Extremes } from "./Extremes";
import { FleetCharts } from "./FleetCharts";
import { HeatMap } from "./HeatMap";
import { Kpis } from "./Kpis";
import { UTILISATION } from "./metrics";
import { NoData } from "./NoData";
import { byHost, newestMs } from "./shape";
import { useFleet } from "./useFleet";

const HEAT_RANGE = rangeNamed("1h");

export function FleetView({ route }: { route: Route }) {
  const range = rangeNamed(route.query["range"]);
  const fleet = useFleet();
  const pipeline = usePipeline();
  const events = useEvents({});
  const gpus = fleet.data;
  const newest = useMemo(() => (gpus === undefined ? undefined : newestMs(gpus)), [gpus]);
  const hosts = useMemo(() => byHost(gpus ?? [], newest), [gpus, newest]);
  const heat = useRollups({ level: "host", metric: UTILISATION }, HEAT_RANGE, newest);

  if (gpus === undefined) return <Waiting error={fleet.error} />;
  if (gpus.length === 0) return <NoData pipeline={pipeline.data} />;
  return (
    <>
      <PageHead title="Fleet">
        <RangeChoice range={range} />
      </PageHead>
      <Kpis gpus={gpus} hosts={hosts.length} pipeline={pipeline.data} events={events.data} />
      <FleetCharts gpus={gpus} range={range} newestMs={newest} />
      <div className="columns wide-left">
        <div className="stack">
          <HeatMap hosts={hosts} newestMs={newest} history={heat.data} />
          <EventsCard events={events} severity={route.query["severity"]} />
        </div>
        <div className="stack">
          <PipelinePanel pipeline={pipeline} />
          <Extremes gpus={gpus} newestMs={newest} />
        </div>
      </div>
    </>
  );
}
