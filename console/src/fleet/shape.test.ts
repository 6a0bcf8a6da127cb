import { describe, expect, it } from "vitest";
import type { Gpu, Latest, Rollup } from "../api/types";
import { heatRows, heatStep } from "./heat";
import { ages, byHost, gpusNow, hottest, idlest, newestMs, percentile } from "./shape";

const NOON = Date.parse("2026-03-01T12:00:00Z");

function gpu(uuid: string, hostname: string, gpuId: string): Gpu {
  return { uuid, Hostname: hostname, gpu_id: gpuId, device: "", modelName: "H100", last_seen: "" };
}

function latest(uuid: string, hostname: string, value: number, secondsAgo = 0): Latest {
  return { uuid, hostname, metric: "", value, time: new Date(NOON - secondsAgo * 1_000).toISOString() };
}

const FLEET = gpusNow([gpu("b", "node-10", "0"), gpu("a", "node-2", "1"), gpu("c", "node-2", "0")], {
  utilisation: [latest("a", "node-2", 90), latest("b", "node-10", 10), latest("new", "node-3", 50)],
  temperature: [latest("a", "node-2", 70, 2), latest("b", "node-10", 95)],
  power: [],
});

describe("the fleet now", () => {
  it("lists every GPU once, in the order of hosts and slots", () => {
    expect(FLEET.map((one) => one.uuid)).toEqual(["c", "a", "new", "b"]);
  });

  it("takes the newest time of a GPU's values", () => {
    expect(FLEET.find((one) => one.uuid === "a")?.timeMs).toBe(NOON);
    expect(FLEET.find((one) => one.uuid === "c")?.timeMs).toBeUndefined();
  });

  it("ranks only GPUs whose value is known", () => {
    expect(hottest(FLEET, 5).map((one) => one.uuid)).toEqual(["b", "a"]);
    expect(idlest(FLEET, 2).map((one) => one.uuid)).toEqual(["b", "new"]);
  });

  it("has no values of a silent GPU, beside the fleet's newest value and not the clock", () => {
    const known = [gpu("a", "node-1", "0"), gpu("b", "node-1", "1"), gpu("c", "node-2", "0")];
    const heard = [latest("a", "node-1", 90, 10), latest("b", "node-1", 86, 71), latest("c", "node-2", 5, 69)];
    const seen = gpusNow(known, { utilisation: heard, temperature: [], power: [] });
    expect(seen.map((one) => one.silent)).toEqual([false, true, false]);
    expect(seen[1]).toMatchObject({ utilisation: undefined, timeMs: NOON - 71_000 });
    expect(byHost(seen)[0]?.utilisation).toBe(90);
    expect(gpusNow(known, { utilisation: [], temperature: [], power: [] }).every((one) => one.silent)).toBe(true);
  });

  it("has no newest time and no ages when nothing was heard", () => {
    expect(newestMs([])).toBeUndefined();
    expect(ages([{ ...FLEET[0]!, timeMs: NOON + 5_000 }], NOON)).toEqual([0]);
  });
});

describe("percentile", () => {
  it("is one of the values, by nearest rank", () => {
    expect(percentile([4, 1, 3, 2], 0.5)).toBe(2);
    expect(percentile([4, 1, 3, 2], 0.99)).toBe(4);
    expect(percentile([], 0.5)).toBeUndefined();
  });
});

describe("the heat map", () => {
  it.each([[-3, 0], [0, 0], [9.9, 0], [10, 1], [99, 9], [100, 9], [250, 9]])("colours %d as step %d", (value, step) => {
    expect(heatStep(value)).toBe(step);
  });

  it("puts each minute into its column and leaves gaps", () => {
    const rollup = (minutesAgo: number, mean: number): Rollup => ({
      resolution: "1m", level: "host", key: "node-1", hostname: "node-1", metric: "", min: 0, max: 0, p95: 0, count: 1,
      mean, window_start: new Date(NOON - minutesAgo * 60_000).toISOString(),
    });
    const rows = heatRows([rollup(0, 5), rollup(2, 7), rollup(9, 1)], NOON + 30_000, 4, 60_000);
    expect(rows.get("node-1")).toEqual([null, 7, null, 5]);
  });
});
