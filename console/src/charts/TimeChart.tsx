import { type KeyboardEvent, useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { changeQuery } from "../app/router";
import { useShownTheme } from "../app/theme";
import { NOTHING } from "../format/numbers";
import { clockTime } from "../format/times";
import { leaveZoom } from "./RangeChoice";
import { zoomQuery } from "./ranges";
import { type Columns, lastValue } from "./series";
import { colour, timeAxis, valueAxis } from "./style";

export interface Line {
  label: string;
  /** A custom property of the style sheet, such as `--series-mean`. */
  colour: string;
  fill?: boolean;
  width?: number;
}

export interface TimeChartProps {
  title: string;
  lines: readonly Line[];
  columns: Columns;
  startMs: number;
  endMs: number;
  format: (value: number | undefined) => string;
  /** For the value axis, where room is short; `format` when absent. */
  axis?: (value: number) => string;
  /** The least extent of the value scale. */
  scale?: readonly [number, number] | undefined;
  /** Charts with the same group show the cursor at the same time. */
  group?: string;
  height?: number;
  /** Shown over the chart, such as that its data is on the way. */
  note?: string | undefined;
}

/** A time series on a canvas with its legend: the values under the cursor, or the newest. */
export function TimeChart(props: TimeChartProps) {
  const { title, lines, columns, format, height = 190, note } = props;
  const theme = useShownTheme();
  const holder = useRef<HTMLDivElement>(null);
  const caption = useRef<HTMLElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const shape = lines.map((line) => line.label + line.colour).join("|");

  useEffect(() => {
    const element = holder.current;
    if (element === null) return undefined;
    const made = new uPlot(options(latest, element, height, caption), aligned(latest.current), element);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [theme, shape, height]);

  useEffect(() => {
    plot.current?.setData(aligned(latest.current));
    if (plot.current !== null) showValues(plot.current, latest.current, caption.current);
  });

  return (
    <figure className="chart">
      <figcaption ref={caption}>
        <h2>{title}</h2>
        <span className="at" />
        <dl className="legend">
          {lines.map((line, index) => (
            <div key={line.label}>
              <dt>
                <i style={{ background: `var(${line.colour})` }} />
                {line.label}
              </dt>
              <dd>{format(lastValue(columns.values[index]))}</dd>
            </div>
          ))}
        </dl>
      </figcaption>
      <div
        className="plot"
        ref={holder}
        role="img"
        tabIndex={0}
        aria-label={described(props)}
        onKeyDown={(event) => moveCursor(event, plot.current)}
        style={{ height }}
      />
      {note !== undefined && <p className="chart-note">{note}</p>}
    </figure>
  );
}

function options(
  latest: { readonly current: TimeChartProps },
  element: HTMLElement,
  height: number,
  caption: { readonly current: HTMLElement | null },
): uPlot.Options {
  const { lines, group, scale, format, axis = format } = latest.current;
  return {
    width: element.clientWidth,
    height,
    // At the right there is room for half of the last time's label.
    padding: [8, 24, 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      drag: { x: true, y: false, setScale: false },
      bind: { dblclick: () => leaveZoomed },
      points: { size: 6 },
      ...(group === undefined ? {} : { sync: { key: group, setSeries: false } }),
    },
    scales: {
      x: { time: true, range: () => [latest.current.startMs / 1_000, latest.current.endMs / 1_000] },
      y: { range: (_, low, high) => extent(low, high, scale) },
    },
    axes: [timeAxis(), valueAxis(axis)],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.label,
        stroke: () => colour(line.colour),
        width: line.width ?? 1.75,
        // A lone point between gaps, or the first of all, would be invisible as a line.
        points: { show: isSparse, size: 4 },
        ...(line.fill ? { fill: () => colour(line.colour, 0.14) } : {}),
      })),
    ],
    hooks: {
      setCursor: [(made: uPlot) => showValues(made, latest.current, caption.current)],
      setSelect: [zoomIn],
    },
  };
}

// A shorter way of the mouse is a click that slipped.
const LEAST_DRAG_PX = 5;

/** What was drawn over becomes the range of the whole page. */
function zoomIn(made: uPlot): void {
  const { left, width } = made.select;
  if (width < LEAST_DRAG_PX) return;
  made.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  changeQuery(zoomQuery(made.posToVal(left, "x") * 1_000, made.posToVal(left + width, "x") * 1_000));
}

function leaveZoomed(): null {
  leaveZoom();
  return null;
}

function isSparse(made: uPlot): boolean {
  return made.data[0].length < 4;
}

function extent(
  low: number | null,
  high: number | null,
  scale: readonly [number, number] | undefined,
): uPlot.Range.MinMax {
  if (low === null || high === null) return scale === undefined ? [0, 1] : [scale[0], scale[1]];
  const margin = Math.max((high - low) * 0.08, Math.abs(high) * 0.002, 1e-9);
  const bottom = low >= 0 ? Math.max(0, low - margin) : low - margin;
  return [Math.min(bottom, scale?.[0] ?? bottom), Math.max(high + margin, scale?.[1] ?? high)];
}

function aligned({ columns }: TimeChartProps): uPlot.AlignedData {
  return [columns.times, ...columns.values];
}

/** Straight into the page: the cursor moves far more often than the data changes. */
function showValues(made: uPlot, { columns, format }: TimeChartProps, caption: HTMLElement | null): void {
  const index = made.cursor.idx ?? null;
  const time = index === null ? undefined : columns.times[index];
  const at = caption?.querySelector(".at");
  if (at) at.textContent = time === undefined ? "" : clockTime(time * 1_000, Date.now());
  caption?.querySelectorAll("dd").forEach((cell, series) => {
    const column = columns.values[series];
    cell.textContent = index === null ? format(lastValue(column)) : format(column?.[index] ?? undefined);
  });
}

function moveCursor(event: KeyboardEvent, made: uPlot | null): void {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (made === null || step === undefined) return;
  event.preventDefault();
  const times = made.data[0];
  if (times.length === 0) return;
  const from = made.cursor.idx ?? times.length - (step < 0 ? 0 : 1);
  const index = Math.min(times.length - 1, Math.max(0, from + step));
  const top = made.bbox.height / devicePixelRatio / 2;
  made.setCursor({ left: made.valToPos(times[index] ?? 0, "x"), top });
}

function described({ title, lines, columns, format }: TimeChartProps): string {
  if (columns.times.length === 0) return `${title}: no data in this range`;
  const values = lines.map((line, index) => `${line.label} ${format(lastValue(columns.values[index]))}`);
  return `${title}, newest values: ${values.join(", ") || NOTHING}`;
}
