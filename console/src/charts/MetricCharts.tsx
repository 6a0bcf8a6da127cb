import { useMemo } from "react";
import type { Series } from "../api/series";
import type { Point, Rollup } from "../api/types";
import { inReadingOrder, metricInfo } from "../fleet/metrics";
import { axisLabel, withUnit } from "../format/numbers";
import { Loading, State } from "../parts/State";
import { type Range, windowMs } from "./ranges";
import { type Columns, inUnitsOf, pointColumns, rollupColumns } from "./series";
import { type Line, TimeChart } from "./TimeChart";

const SUMMARY: readonly Line[] = [
  { label: "max", colour: "--series-3", width: 1 },
  { label: "p95", colour: "--series-2" },
  { label: "mean", colour: "--series-1", fill: true },
];
const VALUE: readonly Line[] = [{ label: "value", colour: "--series-1", fill: true }];
const POINT_GAP_MS = 45_000;

interface MetricChartsProps<T> {
  series: Series<T> | undefined;
  range: Range;
}

/** A chart per metric, from the rollups of one GPU or host. */
export function RollupCharts({ series, range }: MetricChartsProps<Rollup>) {
  const charts = useMemo(
    () => columnsByMetric(series?.rows ?? [], (rows) => rollupColumns(rows, ["max", "p95", "mean"], windowMs(range.resolution))),
    [series, range],
  );
  return <Charts charts={charts} lines={SUMMARY} series={series} />;
}

/** A chart per metric, from raw points. */
export function PointCharts({ series }: MetricChartsProps<Point>) {
  const charts = useMemo(() => columnsByMetric(series?.rows ?? [], (rows) => pointColumns(rows, POINT_GAP_MS)), [series]);
  return <Charts charts={charts} lines={VALUE} series={series} />;
}

function columnsByMetric<T extends { metric: string }>(
  rows: readonly T[],
  columns: (rows: T[]) => Columns,
): Map<string, Columns> {
  const groups = new Map<string, T[]>();
  for (const row of rows) {
    const group = groups.get(row.metric);
    if (group === undefined) groups.set(row.metric, [row]);
    else group.push(row);
  }
  return new Map(
    inReadingOrder(groups.keys()).map((metric) => [
      metric,
      inUnitsOf(metricInfo(metric).of ?? 1, columns(groups.get(metric) ?? [])),
    ]),
  );
}

interface ChartsProps {
  charts: ReadonlyMap<string, Columns>;
  lines: readonly Line[];
  series: { startMs: number; endMs: number } | undefined;
}

function Charts({ charts, lines, series }: ChartsProps) {
  if (series === undefined) return <Loading />;
  if (charts.size === 0) {
    return <State title="No data in this range">Choose a longer range; minutes are summed up shortly after they end.</State>;
  }
  return (
    <div className="charts">
      {[...charts].map(([metric, columns]) => {
        const { title, unit, scale } = metricInfo(metric);
        return (
          <TimeChart
            key={metric}
            title={title}
            group="metrics"
            lines={lines}
            columns={columns}
            format={(value) => withUnit(value, unit)}
            axis={(value) => axisLabel(value, unit)}
            scale={scale}
            startMs={series.startMs}
            endMs={series.endMs}
            height={150}
          />
        );
      })}
    </div>
  );
}
