import { describe, expect, it } from "vitest";
import { byName, kindTitle, shortUuid } from "./names";
import { axisLabel, compact, fixed, NOTHING, percent, withUnit } from "./numbers";
import { ago, duration, timeZone } from "./times";

describe("numbers", () => {
  it.each([
    [0, "0"],
    [7.25, "7.3"],
    [950, "950"],
    [1_234, "1.23k"],
    [12_345, "12.3k"],
    [123_456, "123k"],
    [999_499, "999k"],
    [999_600, "1.00M"],
    [4_570_000, "4.57M"],
    [-2_500, "-2.50k"],
  ])("compact(%d) is %s", (value, text) => {
    expect(compact(value)).toBe(text);
  });

  it("has a dash for what is not there", () => {
    for (const format of [compact, fixed, percent]) {
      expect(format(undefined)).toBe(NOTHING);
      expect(format(Number.NaN)).toBe(NOTHING);
    }
  });

  it("is as precise as the size makes useful", () => {
    expect(withUnit(84.23, "°C")).toBe("84.2 °C");
    expect(withUnit(794.662, "W")).toBe("795 W");
    expect(withUnit(0.0123, "kWh")).toBe("0.01 kWh");
    expect(withUnit(3, "")).toBe("3");
  });

  it("leaves long units off an axis", () => {
    expect(axisLabel(75, "°C")).toBe("75 °C");
    expect(axisLabel(1_750, "MHz")).toBe("1,750");
    expect(axisLabel(40_000, "MiB")).toBe("40k");
  });
});

describe("times", () => {
  it.each([
    [-5, "0.0 s"],
    [840, "0.8 s"],
    [42_400, "42 s"],
    [185_000, "3 min 5 s"],
    [180_000, "3 min"],
    [42 * 60_000 + 9_000, "42 min"],
    [7_800_000, "2 h 10 min"],
    [356_400_000, "4 d 3 h"],
  ])("duration(%d) is %s", (ms, text) => {
    expect(duration(ms)).toBe(text);
  });

  it("says nothing about a time it does not know", () => {
    expect(ago(undefined, 0)).toBe(NOTHING);
    expect(ago(Date.parse("nonsense"), 0)).toBe(NOTHING);
  });
});

describe("the time zone", () => {
  it("is named with its distance from UTC", () => {
    expect(timeZone(new Date())).toMatch(/^UTC$|\(UTC([+-]\d+(:\d\d)?)?\)$/);
  });
});

describe("names", () => {
  it("shortens a uuid to its first group", () => {
    expect(shortUuid("GPU-5fd4f087-86f3-7a43")).toBe("5fd4f087");
    expect(shortUuid("gpu-1")).toBe("1");
  });

  it("makes a title of a kind", () => {
    expect(kindTitle("thermal_excursion")).toBe("Thermal excursion");
    expect(kindTitle("xid_burst")).toBe("XID burst");
  });

  it("sorts numbers in names by size", () => {
    expect(["node-10", "node-2", "node-1"].sort(byName)).toEqual(["node-1", "node-2", "node-10"]);
  });
});
