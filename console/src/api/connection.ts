/** Whether the query API answers: one state for the page, told by every request. */

import { useSyncExternalStore } from "react";

export interface Connection {
  /** When the API stopped answering (browser clock), or null while it answers. */
  downSince: number | null;
  reason: string;
}

let current: Connection = { downSince: null, reason: "" };
const listeners = new Set<() => void>();
const retries = new Set<() => void>();

function change(next: Connection): void {
  current = next;
  for (const listener of listeners) listener();
}

export function reportAnswer(): void {
  if (current.downSince === null) return;
  change({ downSince: null, reason: "" });
  retryNow();
}

export function reportFailure(reason: string): void {
  if (current.downSince !== null && current.reason === reason) return;
  change({ downSince: current.downSince ?? Date.now(), reason });
}

/** Pollers that are backing off ask again at once. */
export function retryNow(): void {
  for (const retry of [...retries]) retry();
}

export function onRetry(retry: () => void): () => void {
  retries.add(retry);
  return () => retries.delete(retry);
}

export function useConnection(): Connection {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => current,
  );
}
