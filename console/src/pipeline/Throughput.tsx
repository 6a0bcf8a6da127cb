import { now } from "../api/clock";
import { withLive } from "../charts/series";
import { type Line, TimeChart } from "../charts/TimeChart";
import { axisLabel, compact } from "../format/numbers";
import { remembered } from "./history";

const RATE: readonly Line[] = [{ label: "rows / s", colour: "--series-1", fill: true }];
const LAG: readonly Line[] = [{ label: "records", colour: "--series-3", fill: true }];
const LEAST_SPAN_MS = 2 * 60_000;
const MOST_SPAN_MS = 15 * 60_000;
const GAP_MS = 60_000;

export function ThroughputChart({ height }: { height?: number }) {
  return <HistoryChart title="Throughput" lines={RATE} column={0} height={height} />;
}

export function LagChart() {
  return <HistoryChart title="Lag" lines={LAG} column={1} height={undefined} />;
}

interface HistoryChartProps {
  title: string;
  lines: readonly Line[];
  column: number;
  height: number | undefined;
}

function HistoryChart({ title, lines, column, height }: HistoryChartProps) {
  const samples = remembered();
  const columns = withLive({ times: [], values: [[], []] }, samples, GAP_MS);
  const endMs = now();
  const spanMs = Math.min(MOST_SPAN_MS, Math.max(LEAST_SPAN_MS, endMs - (samples[0]?.timeMs ?? endMs)));
  return (
    <TimeChart
      title={title}
      group="pipeline"
      lines={lines}
      columns={{ times: columns.times, values: [columns.values[column] ?? []] }}
      format={compact}
      axis={(value) => axisLabel(value, "")}
      scale={[0, 100]}
      startMs={endMs - spanMs}
      endMs={endMs}
      {...(height === undefined ? {} : { height })}
    />
  );
}
