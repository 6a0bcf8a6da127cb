import { type EventQuery, fetchEvents } from "../api/fetches";
import { type Polled, usePoll } from "../api/poll";
import type { HealthEvent } from "../api/types";

const EVERY_MS = 2_000;
export const MOST_EVENTS = 500;

/** The newest events that match, newest first. */
export function useEvents(query: EventQuery): Polled<HealthEvent[]> {
  return usePoll<HealthEvent[]>(
    `events|${JSON.stringify(query)}`,
    (signal) => fetchEvents(query, MOST_EVENTS, signal),
    EVERY_MS,
  );
}
