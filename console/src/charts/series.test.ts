import { describe, expect, it } from "vitest";
import type { Rollup } from "../api/types";
import { rangeEnd, rangeOf, rangeWords, zoomQuery } from "./ranges";
import { inUnitsOf, lastValue, minuteColumns, pointColumns, rollupColumns, withLive } from "./series";

const MINUTE = 60_000;

function rollup(minute: number, mean: number): Rollup {
  return {
    resolution: "1m", level: "fleet", key: "fleet", hostname: "", metric: "", min: 0, max: 0, p95: mean + 1, count: 1,
    mean, window_start: new Date(minute * MINUTE).toISOString(),
  };
}

describe("rollups as columns", () => {
  it("sorts windows and puts each at its middle", () => {
    expect(rollupColumns([rollup(1, 20), rollup(0, 10)], ["mean", "p95"], MINUTE)).toEqual({
      times: [30, 90],
      values: [
        [10, 20],
        [11, 21],
      ],
    });
  });

  it("breaks the line where a window is missing", () => {
    expect(rollupColumns([rollup(0, 10), rollup(3, 20)], ["mean"], MINUTE).values).toEqual([[10, null, 20]]);
  });

  it("is continued by live samples that are newer", () => {
    const past = rollupColumns([rollup(0, 10)], ["mean"], MINUTE);
    const live = [20_000, 40_000, 42_000].map((timeMs) => ({ timeMs, values: [timeMs / 1_000] }));
    expect(withLive(past, live, 30_000)).toEqual({ times: [30, 40, 42], values: [[10, 40, 42]] });
  });
});

describe("the job's minutes as columns", () => {
  it("have a row each and a gap where the job did not run", () => {
    const minute = (number: number, rate: number) => ({
      time: new Date(number * MINUTE).toISOString(), rows_per_second: rate, lag: 7,
    });
    expect(minuteColumns([minute(0, 10), minute(1, 20), minute(4, 30)])).toEqual({
      times: [30, 90, 180, 270],
      values: [[10, 20, null, 30], [7, 7, null, 7]],
    });
  });

  it("can be in another unit", () => {
    expect(inUnitsOf(1_024, { times: [0, 1], values: [[2_048, null]] }).values).toEqual([[2, null]]);
  });
});

describe("points as columns", () => {
  it("breaks the line after a silence", () => {
    const points = [0, 5, 100].map((second) => ({ metric: "", value: second, time: new Date(second * 1_000).toISOString() }));
    expect(pointColumns(points, 45_000).values).toEqual([[0, 5, null, 100]]);
  });

  it("has a last value behind a gap", () => {
    expect(lastValue([1, 2, null])).toBe(2);
    expect(lastValue([null])).toBeUndefined();
    expect(lastValue(undefined)).toBeUndefined();
  });
});

describe("ranges", () => {
  it("end now while data is fresh, and at the newest data when that is old", () => {
    expect(rangeEnd(undefined, 9 * MINUTE)).toBe(9 * MINUTE);
    expect(rangeEnd(6 * MINUTE, 9 * MINUTE)).toBe(9 * MINUTE);
    expect(rangeEnd(MINUTE, 9 * MINUTE)).toBe(MINUTE);
  });

  it("fall back to fifteen minutes", () => {
    expect(rangeOf({ range: "nonsense" }).name).toBe("15m");
    expect(rangeOf({ from: "nonsense", to: "2026-03-01T12:00:00Z" }).name).toBe("15m");
    expect(rangeOf({ from: "2026-03-01T12:00:00Z", to: "2026-03-01T12:00:00Z" }).name).toBe("15m");
  });

  it("are what was drawn over a chart, and at least a minute", () => {
    const noon = Date.parse("2026-03-01T12:00:00Z");
    const words = zoomQuery(noon, noon + 600_400);
    expect(words).toEqual({ from: "2026-03-01T12:00:00Z", to: "2026-03-01T12:10:00Z" });
    expect(rangeOf(words)).toMatchObject({ spanMs: 600_000, endMs: noon + 600_000, resolution: "1m" });
    expect(rangeEnd(noon, noon + 9_000_000, rangeOf(words))).toBe(noon + 600_000);
    expect(rangeOf(zoomQuery(noon, noon + 1_000)).spanMs).toBe(60_000);
    expect(rangeOf(zoomQuery(noon, noon + 5 * 86_400_000)).resolution).toBe("1h");
    expect(rangeWords({ ...words, severity: "info" })).toEqual(words);
  });
});
