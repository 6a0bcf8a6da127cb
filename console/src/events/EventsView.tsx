import { changeQuery, type Route } from "../app/router";
import { Card } from "../parts/Card";
import { PageHead } from "../parts/PageHead";
import { Waiting } from "../parts/State";
import { EventList } from "./EventList";
import { severityNamed, withSeverity } from "./filter";
import { SeverityChoice } from "./SeverityChoice";
import { MOST_EVENTS, useEvents } from "./useEvents";

export function EventsView({ route }: { route: Route }) {
  const severity = severityNamed(route.query["severity"]);
  const status = route.query["status"];
  const events = useEvents({ status });
  const all = events.data;
  return (
    <>
      <PageHead title="Events" note={all?.length === MOST_EVENTS ? `the newest ${MOST_EVENTS}` : undefined}>
        <label className="check">
          <input
            type="checkbox"
            checked={status === "open"}
            onChange={(event) => changeQuery({ status: event.target.checked ? "open" : undefined })}
          />
          open only
        </label>
        <SeverityChoice events={all ?? []} severity={severity} />
      </PageHead>
      <Card title="Health events">
        {all === undefined ? (
          <Waiting error={events.error} />
        ) : (
          <EventList events={withSeverity(all, severity)} />
        )}
      </Card>
    </>
  );
}
