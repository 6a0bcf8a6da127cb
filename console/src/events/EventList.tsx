import { now } from "../api/clock";
import type { HealthEvent } from "../api/types";
import { kindTitle, shortUuid } from "../format/names";
import { ago, clockTime, duration } from "../format/times";
import { GpuLink, HostLink } from "../parts/links";
import { State } from "../parts/State";
import { evidenceLines } from "./filter";

interface EventListProps {
  events: readonly HealthEvent[];
  /** At most this many; the caller says where the rest is. */
  most?: number;
}

export function EventList({ events, most = events.length }: EventListProps) {
  if (events.length === 0) return <State title="No events">Nothing was found wrong with these GPUs.</State>;
  return (
    <ul className="events">
      {events.slice(0, most).map((event) => (
        <EventRow key={event.event_id} event={event} />
      ))}
    </ul>
  );
}

function EventRow({ event }: { event: HealthEvent }) {
  const startMs = Date.parse(event.start);
  const endMs = Date.parse(event.end);
  const evidence = evidenceLines(event.evidence);
  return (
    <li className={event.severity}>
      <span className={`tag ${event.severity}`}>{event.severity}</span>
      <div className="what">
        <strong>{kindTitle(event.kind)}</strong> <span>{event.message}</span>
        {evidence.length > 0 && (
          <details>
            <summary>Evidence</summary>
            <dl>
              {evidence.map(([name, value]) => (
                <div key={name}>
                  <dt>{name}</dt>
                  <dd>{value}</dd>
                </div>
              ))}
            </dl>
          </details>
        )}
      </div>
      <span className="subject">
        {event.hostname && <HostLink hostname={event.hostname} />}
        {event.uuid && <GpuLink uuid={event.uuid}>{shortUuid(event.uuid)}</GpuLink>}
      </span>
      <span className="when" title={`${event.start} to ${event.end}`}>
        {event.status === "open" ? (
          <>
            <b>open</b> since {clockTime(startMs, now())}
          </>
        ) : (
          `ended ${ago(endMs, now())}`
        )}
        {endMs > startMs && ` · ${duration(endMs - startMs)}`}
      </span>
    </li>
  );
}
