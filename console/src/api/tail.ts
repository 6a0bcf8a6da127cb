/**
 * Rows of a moving time range, loaded once and then by their tail. Late data can change older rows, so the whole range
 * is loaded again from time to time.
 */

const WHOLE_EVERY_MS = 60_000;

export interface Tail<T> {
  rows: Map<string, T>;
  startMs: number;
  newestMs: number;
  wholeAtMs: number;
}

export interface TailSource<T> {
  load: (startMs: number, endMs: number) => Promise<T[]>;
  identity: (row: T) => string;
  timeMs: (row: T) => number;
  /** How far before the newest row a tail begins. */
  overlapMs: number;
}

export async function loadTail<T>(
  source: TailSource<T>,
  startMs: number,
  endMs: number,
  previous: Tail<T> | undefined,
): Promise<Tail<T>> {
  const whole =
    previous === undefined ||
    previous.rows.size === 0 ||
    startMs < previous.startMs ||
    endMs - previous.wholeAtMs > WHOLE_EVERY_MS;
  const fromMs = whole ? startMs : Math.max(startMs, previous.newestMs - source.overlapMs);
  const loaded = await source.load(fromMs, endMs);
  return merge(source, loaded, startMs, endMs, whole ? undefined : previous);
}

function merge<T>(
  source: TailSource<T>,
  loaded: readonly T[],
  startMs: number,
  endMs: number,
  previous: Tail<T> | undefined,
): Tail<T> {
  const rows = new Map<string, T>();
  let newestMs = startMs;
  for (const row of [...(previous?.rows.values() ?? []), ...loaded]) {
    const timeMs = source.timeMs(row);
    if (timeMs < startMs) continue;
    rows.set(source.identity(row), row);
    newestMs = Math.max(newestMs, timeMs);
  }
  return { rows, startMs, newestMs, wholeAtMs: previous?.wholeAtMs ?? endMs };
}
