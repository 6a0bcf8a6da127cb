import { describe, expect, it } from "vitest";
import { hashOf, parseHash } from "./router";

describe("routes", () => {
  it("survive the way through an address", () => {
    const hash = hashOf(["gpus", "GPU/1 ?"], { range: "1h" });
    expect(hash).toBe("#/gpus/GPU%2F1%20%3F?range=1h");
    expect(parseHash(hash)).toEqual({ path: ["gpus", "GPU/1 ?"], query: { range: "1h" } });
  });

  it("are found in any hash", () => {
    expect(parseHash("")).toEqual({ path: [], query: {} });
    expect(parseHash("#/gpus/%zz")).toEqual({ path: ["gpus", "%zz"], query: {} });
  });
});
