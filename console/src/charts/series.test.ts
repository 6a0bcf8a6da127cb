import { describe, expect, it } from "vitest";
import type { Rollup } from "../api/types";
import { rangeEnd, rangeNamed } from "./ranges";
import { lastValue, pointColumns, rollupColumns, withLive } from "./series";

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
    expect(rangeNamed("nonsense").name).toBe("15m");
  });
});
