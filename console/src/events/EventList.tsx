import { now } from "../api/clock";
import type { HealthEvent } from "../api/types";
import { kindTitle, shortUuid } from "../format/names";
import { clockTime, duration } from "../format/times";
import { GpuLink, HostLink } from "../parts/links";
import { evidenceLines } from "./filter";

interface EventListProps {
  title: string;
  events: readonly HealthEvent[];
  /** At most this many; the caller says where the rest is. */
  most?: number;
  /** Said when there is none. */
  nothing: string;
}

export function EventList({ title, events, most = events.length, nothing }: EventListProps) {
  return (
    <section aria-label={title}>
      <h3>
        {title} <small>{events.length}</small>
      </h3>
      {events.length === 0 && <p className="nothing">{nothing}</p>}
      <ul className="events">
        {events.slice(0, most).map((event) => (
          <EventRow key={event.event_id} event={event} />
        ))}
      </ul>
    </section>
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
            <b>since {clockTime(startMs, now())}</b> · {duration(now() - startMs)}
          </>
        ) : (
          `${clockTime(startMs, now())} to ${clockTime(endMs, startMs)} · ${duration(endMs - startMs)}`
        )}
      </span>
    </li>
  );
}
