import { useEffect, useRef, useState } from "react";
import { ApiError } from "./client";
import { onRetry } from "./connection";

const LONGEST_DELAY_MS = 30_000;

export interface Polled<T> {
  data: T | undefined;
  error: ApiError | undefined;
}

/** Loads the value; `previous` is what the last load of the same key gave. */
export type Load<T> = (signal: AbortSignal, previous: T | undefined) => Promise<T>;

export function delayAfter(everyMs: number, failures: number): number {
  return Math.min(Math.max(LONGEST_DELAY_MS, everyMs), everyMs * 2 ** failures);
}

/**
 * Loads again and again while the component lives and the page is visible. Failures double the delay; the last good
 * value stays. A new key starts anew.
 */
export function usePoll<T>(key: string, load: Load<T>, everyMs: number): Polled<T> {
  const [state, setState] = useState<Polled<T> & { key: string }>({ key, data: undefined, error: undefined });
  const latestLoad = useRef(load);
  latestLoad.current = load;

  useEffect(() => {
    const ended = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let failures = 0;
    let loading = false;
    let data: T | undefined;

    async function round(): Promise<void> {
      clearTimeout(timer);
      if (loading || ended.signal.aborted) return;
      loading = true;
      try {
        data = await latestLoad.current(ended.signal, data);
        failures = 0;
        if (!ended.signal.aborted) setState({ key, data, error: undefined });
      } catch (error) {
        if (ended.signal.aborted) return;
        failures += 1;
        const known = error instanceof ApiError ? error : new ApiError(String(error), 0);
        setState({ key, data, error: known });
      } finally {
        loading = false;
        if (!ended.signal.aborted && !document.hidden) {
          timer = setTimeout(() => void round(), delayAfter(everyMs, failures));
        }
      }
    }

    function visibilityChanged(): void {
      if (document.hidden) clearTimeout(timer);
      else void round();
    }

    const forget = onRetry(() => {
      if (failures > 0) void round();
    });
    document.addEventListener("visibilitychange", visibilityChanged);
    void round();
    return () => {
      ended.abort();
      clearTimeout(timer);
      forget();
      document.removeEventListener("visibilitychange", visibilityChanged);
    };
  }, [key, everyMs]);

  return state.key === key ? state : { data: undefined, error: undefined };
}
