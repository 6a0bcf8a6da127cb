import { now } from "../api/clock";
import { fetchHistory } from "../api/fetches";
import { usePoll } from "../api/poll";
import type { JobMinute } from "../api/types";
import { type Range, rangeEnd } from "../charts/ranges";

const EVERY_MS = 10_000;

export interface JobHistory {
  minutes: JobMinute[];
  startMs: number;
  endMs: number;
}

/** What the job wrote down of each minute of the page's range, whether or not a page was open. */
export function useHistory(range: Range, newestMs: number | undefined): JobHistory {
  const polled = usePoll<JobHistory>(
    `history|${range.name}`,
    async (signal) => {
      const endMs = rangeEnd(newestMs, now(), range);
      const startMs = endMs - range.spanMs;
      return { minutes: await fetchHistory(startMs - 60_000, endMs, signal), startMs, endMs };
    },
    EVERY_MS,
  );
  const endMs = range.endMs ?? rangeEnd(newestMs, now());
  return { minutes: polled.data?.minutes ?? [], startMs: endMs - range.spanMs, endMs };
}
