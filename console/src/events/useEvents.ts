import { now } from "../api/clock";
import { type EventQuery, fetchEvents, rfc3339 } from "../api/fetches";
import { type Polled, usePoll } from "../api/poll";
import type { HealthEvent } from "../api/types";
import type { Range } from "../charts/ranges";

const EVERY_MS = 2_000;
export const MOST_EVENTS = 500;

export interface Events {
  /** All that go on now, however long ago they began. */
  active: HealthEvent[];
  /** Those of the page's range that are over. */
  ended: HealthEvent[];
}

/** The newest of each first. */
export function useEvents(query: EventQuery, range: Range): Polled<Events> {
  return usePoll<Events>(
    `events|${JSON.stringify(query)}|${range.name}`,
    async (signal) => {
      const endMs = range.endMs ?? now();
      const times = { start_time: rfc3339(endMs - range.spanMs), end_time: rfc3339(endMs) };
      const [active, ended] = await Promise.all([
        fetchEvents({ ...query, status: "open" }, MOST_EVENTS, signal),
        fetchEvents({ ...query, status: "closed", ...times }, MOST_EVENTS, signal),
      ]);
      return { active, ended };
    },
    EVERY_MS,
  );
}
