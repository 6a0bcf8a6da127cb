import type { Route } from "../app/router";
import { RangeChoice } from "../charts/RangeChoice";
import { rangeOf } from "../charts/ranges";
import { useFleet } from "../fleet/useFleet";
import { Card } from "../parts/Card";
import { PageHead } from "../parts/PageHead";
import { Waiting } from "../parts/State";
import { EventList } from "./EventList";
import { nothingActive } from "./EventsCard";
import { severityNamed, withSeverity } from "./filter";
import { SeverityChoice } from "./SeverityChoice";
import { MOST_EVENTS, useEvents } from "./useEvents";

export function EventsView({ route }: { route: Route }) {
  const severity = severityNamed(route.query["severity"]);
  const range = rangeOf(route.query);
  const events = useEvents({}, range);
  const silent = useFleet().data?.filter((gpu) => gpu.silent).length ?? 0;
  const data = events.data;
  return (
    <>
      <PageHead title="Events" note={data?.ended.length === MOST_EVENTS ? `the newest ${MOST_EVENTS}` : undefined}>
        <SeverityChoice events={data} severity={severity} />
        <RangeChoice range={range} />
      </PageHead>
      <Card title="Health events">
        {data === undefined ? (
          <Waiting error={events.error} />
        ) : (
          <>
            <EventList title="Active" events={withSeverity(data.active, severity)} nothing={nothingActive(silent)} />
            <EventList title="Ended in this range" events={withSeverity(data.ended, severity)} nothing="None." />
          </>
        )}
      </Card>
    </>
  );
}
