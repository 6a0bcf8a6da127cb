/** Axes and colours from the page's style sheet, so that charts follow the theme. */

import type uPlot from "uplot";

const FONT = "11px system-ui, sans-serif";

export function colour(property: string, opacity = 1): string {
  const value = getComputedStyle(document.documentElement).getPropertyValue(property).trim();
  if (opacity === 1) return value;
  return `${value}${Math.round(opacity * 255).toString(16).padStart(2, "0")}`;
}

export function timeAxis(): uPlot.Axis {
  return {
    ...lines(),
    size: 26,
    space: 64,
    values: (_, splits, __, ___, increment) => splits.map((split) => timeLabel(split, increment)),
  };
}

export function valueAxis(format: (value: number) => string): uPlot.Axis {
  return { ...lines(), size: 52, space: 34, values: (_, splits) => splits.map((split) => format(split)) };
}

function lines(): uPlot.Axis {
  return {
    font: FONT,
    stroke: () => colour("--muted"),
    grid: { stroke: () => colour("--grid"), width: 1 },
    ticks: { show: false },
    gap: 6,
  };
}

function timeLabel(seconds: number, increment: number): string {
  const time = new Date(seconds * 1_000);
  const two = (value: number) => String(value).padStart(2, "0");
  const clock = `${two(time.getHours())}:${two(time.getMinutes())}`;
  if (increment < 60) return `${clock}:${two(time.getSeconds())}`;
  const midnight = time.getHours() === 0 && time.getMinutes() === 0;
  return increment >= 86_400 || midnight ? `${two(time.getMonth() + 1)}-${two(time.getDate())}` : clock;
}
