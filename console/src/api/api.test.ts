import { describe, expect, it } from "vitest";
import { queryString } from "./client";
import { delayAfter } from "./poll";
import { loadTail, type TailSource } from "./tail";

describe("requests", () => {
  it("leave out what was not asked for", () => {
    expect(queryString({ metric: "GPU UTIL", hostname: undefined, cursor: "", limit: 5 })).toBe("?metric=GPU+UTIL&limit=5");
    expect(queryString({})).toBe("");
  });

  it("come less often after failures, up to half a minute", () => {
    expect([0, 1, 2, 3, 4, 9].map((failures) => delayAfter(2_000, failures))).toEqual([
      2_000, 4_000, 8_000, 16_000, 30_000, 30_000,
    ]);
    expect(delayAfter(60_000, 3)).toBe(60_000);
  });
});

describe("a moving range", () => {
  const asked: [number, number][] = [];
  const stored = [100, 200, 300];
  const source: TailSource<number> = {
    load: (startMs, endMs) => {
      asked.push([startMs, endMs]);
      return Promise.resolve(stored.filter((time) => time >= startMs && time <= endMs));
    },
    identity: String,
    timeMs: (row) => row,
    overlapMs: 50,
  };

  it("is loaded whole, then by its tail, and forgets what has left it", async () => {
    const first = await loadTail(source, 0, 300, undefined);
    stored.push(400);
    const second = await loadTail(source, 150, 450, first);
    expect(asked).toEqual([[0, 300], [250, 450]]);
    expect([...second.rows.values()]).toEqual([200, 300, 400]);
  });

  it("is loaded whole again when it reaches further back, or after a minute", async () => {
    const first = await loadTail(source, 100, 300, undefined);
    asked.length = 0;
    await loadTail(source, 50, 300, first);
    await loadTail(source, 100, 70_000, first);
    expect(asked).toEqual([[50, 300], [100, 70_000]]);
  });
});
