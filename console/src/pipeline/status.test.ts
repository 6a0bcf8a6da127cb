import { describe, expect, it } from "vitest";
import { readStatus } from "./status";

describe("the pipeline's status", () => {
  it("lists partitions in the order of their numbers", () => {
    const status = readStatus({ lag: 12, lag_by_partition: { "telemetry-10": 5, "telemetry-2": 7 } });
    expect(status.partitions).toEqual([
      { name: "telemetry-2", records: 7 },
      { name: "telemetry-10", records: 5 },
    ]);
    expect(status.lag).toBe(12);
  });

  it("is stopped when the API says so, whatever the job said last", () => {
    expect(readStatus({ running: false, state: "running" }).state).toBe("stopped");
    expect(readStatus({ running: true, state: "retrying" }).state).toBe("retrying");
    expect(readStatus({ running: true }).state).toBe("running");
  });

  it("has the last error with its time", () => {
    const { lastError } = readStatus({ last_error: { message: "store down", at: "2026-03-01T00:00:00Z" } });
    expect(lastError).toEqual({ message: "store down", atMs: Date.parse("2026-03-01T00:00:00Z") });
    expect(readStatus({ last_error: null }).lastError).toBeUndefined();
  });

  it("makes the best of a status that lacks fields or has odd ones", () => {
    const status = readStatus({ running: "yes", updated_at: "nonsense", counts: { valid: 3, bad: "many" } });
    expect(status.running).toBe(false);
    expect(status.updatedMs).toBeUndefined();
    expect(status.counts).toEqual([["valid", 3]]);
    expect(readStatus(null).partitions).toEqual([]);
  });
});
