import { useMemo } from "react";
import { minuteColumns, withLive } from "../charts/series";
import { type Line, TimeChart } from "../charts/TimeChart";
import { axisLabel, compact } from "../format/numbers";
import { remembered } from "./history";
import type { JobHistory } from "./useHistory";

const RATE: readonly Line[] = [{ label: "rows / s", colour: "--series-1", fill: true }];
const LAG: readonly Line[] = [{ label: "records", colour: "--series-3", fill: true }];
const GAP_MS = 60_000;

interface HistoryChartProps {
  history: JobHistory;
  height?: number;
}

export function ThroughputChart(props: HistoryChartProps) {
  return <HistoryChart title="Throughput" lines={RATE} column={0} {...props} />;
}

export function LagChart(props: HistoryChartProps) {
  return <HistoryChart title="Lag" lines={LAG} column={1} {...props} />;
}

type OneChart = HistoryChartProps & { title: string; lines: readonly Line[]; column: number };

/** By the minute, as the job wrote it down; the minute under way as this page saw it. */
function HistoryChart({ title, lines, column, history, height }: OneChart) {
  const past = useMemo(() => minuteColumns(history.minutes), [history.minutes]);
  const columns = withLive(past, remembered(), GAP_MS);
  return (
    <TimeChart
      title={title}
      group="pipeline"
      lines={lines}
      columns={{ times: columns.times, values: [columns.values[column] ?? []] }}
      format={compact}
      axis={(value) => axisLabel(value, "")}
      scale={[0, 100]}
      startMs={history.startMs}
      endMs={history.endMs}
      {...(height === undefined ? {} : { height })}
    />
  );
}
