import type { Polled } from "../api/poll";
import type { HealthEvent } from "../api/types";
import { hashOf } from "../app/router";
import { Card } from "../parts/Card";
import { Loading } from "../parts/State";
import { EventList } from "./EventList";
import { severityNamed, withSeverity } from "./filter";
import { SeverityChoice } from "./SeverityChoice";

const SHOWN = 12;

interface EventsCardProps {
  events: Polled<HealthEvent[]>;
  severity: string | undefined;
}

/** The newest events as part of another view. */
export function EventsCard({ events, severity }: EventsCardProps) {
  const chosen = severityNamed(severity);
  const all = events.data;
  const matching = withSeverity(all ?? [], chosen);
  return (
    <Card title="Events" aside={<SeverityChoice events={all ?? []} severity={chosen} />}>
      {all === undefined ? <Loading /> : <EventList events={matching} most={SHOWN} />}
      {matching.length > SHOWN && (
        <a className="more" href={hashOf(["events"], chosen === undefined ? {} : { severity: chosen })}>
          All {matching.length} events
        </a>
      )}
    </Card>
  );
}
