import { describe, expect, it } from "vitest";
import { evidenceLines, severityNamed } from "./filter";

describe("events", () => {
  it("know their severities, and no others", () => {
    expect(severityNamed("critical")).toBe("critical");
    expect(severityNamed("fatal")).toBeUndefined();
    expect(severityNamed(undefined)).toBeUndefined();
  });

  it("show evidence given as JSON text or as an object", () => {
    expect(evidenceLines('{"peak_celsius": 96.2, "codes": [79]}')).toEqual([
      ["peak celsius", "96.2"],
      ["codes", "[79]"],
    ]);
    expect(evidenceLines({ peak_watts: 794.662 })).toEqual([["peak watts", "794.7"]]);
    expect(evidenceLines({ count: 7 })).toEqual([["count", "7"]]);
    expect(evidenceLines("not json")).toEqual([["evidence", "not json"]]);
    expect(evidenceLines("{}")).toEqual([]);
    expect(evidenceLines("")).toEqual([]);
  });
});
