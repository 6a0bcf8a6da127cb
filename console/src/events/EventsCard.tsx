import type { Polled } from "../api/poll";
import { hashOf, useRoute } from "../app/router";
import { rangeWords } from "../charts/ranges";
import { Card } from "../parts/Card";
import { Loading } from "../parts/State";
import { EventList } from "./EventList";
import { severityNamed, withSeverity } from "./filter";
import { SeverityChoice } from "./SeverityChoice";
import type { Events } from "./useEvents";

const SHOWN = 12;

interface EventsCardProps {
  events: Polled<Events>;
  severity: string | undefined;
  /** How many GPUs have fallen silent; the event about it comes some minutes later. */
  silent: number;
}

/** The newest events as part of another view. */
export function EventsCard({ events, severity, silent }: EventsCardProps) {
  const { query } = useRoute();
  const chosen = severityNamed(severity);
  const data = events.data;
  const active = withSeverity(data?.active ?? [], chosen);
  const ended = withSeverity(data?.ended ?? [], chosen);
  const all = active.length + ended.length;
  const words = { ...rangeWords(query), ...(chosen === undefined ? {} : { severity: chosen }) };
  return (
    <Card title="Events" aside={<SeverityChoice events={data} severity={chosen} />}>
      {data === undefined ? (
        <Loading />
      ) : (
        <>
          <EventList title="Active" events={active} most={SHOWN} nothing={nothingActive(silent)} />
          <EventList title="Ended in this range" events={ended} most={SHOWN} nothing="None." />
        </>
      )}
      {(active.length > SHOWN || ended.length > SHOWN) && (
        <a className="more" href={hashOf(["events"], words)}>
          All {all} events
        </a>
      )}
    </Card>
  );
}

export function nothingActive(silent: number): string {
  if (silent === 0) return "Nothing is wrong with these GPUs now.";
  return `${silent === 1 ? "A GPU is" : `${silent} GPUs are`} silent; beyond that nothing is known to be wrong.`;
}
