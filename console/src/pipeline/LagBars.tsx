import { fixed } from "../format/numbers";
import type { PartitionLag } from "./status";

/** Lag per partition; the longest bar is the largest lag, or a thousand records when all are smaller. */
export function LagBars({ partitions }: { partitions: readonly PartitionLag[] }) {
  const full = Math.max(1_000, ...partitions.map((partition) => partition.records));
  return (
    <ul className="lag" aria-label="Lag per partition">
      {partitions.map(({ name, records }) => (
        <li key={name}>
          <span>{name}</span>
          <i aria-hidden="true">
            <b style={{ width: `${(100 * records) / full}%` }} />
          </i>
          <span className="number">{fixed(records)}</span>
        </li>
      ))}
    </ul>
  );
}
