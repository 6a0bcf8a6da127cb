import { now } from "../api/clock";
import { compact, fixed } from "../format/numbers";
import { ago } from "../format/times";
import type { PipelineStatus } from "./status";

/** The pipeline's numbers as a list of terms. */
export function Facts({ status }: { status: PipelineStatus }) {
  return (
    <dl className="facts">
      <Fact term="Rows / s" value={compact(status.rowsPerSecond)} />
      <Fact term="Lag" value={fixed(status.lag)} />
      <Fact
        term="Watermark"
        value={ago(status.watermarkMs, now())}
        title="Event time before which the pipeline expects no more data; later records still count"
      />
      <Fact term="Bad records" value={fixed(status.bad ?? 0)} alarm={(status.bad ?? 0) > 0} />
      <Fact term="Batch" value={fixed(status.batchId)} />
      <Fact term="Reported" value={ago(status.updatedMs, now())} alarm={!status.running} />
    </dl>
  );
}

interface FactProps {
  term: string;
  value: string;
  title?: string;
  alarm?: boolean;
}

function Fact({ term, value, title, alarm = false }: FactProps) {
  return (
    <div title={title} className={alarm ? "alarm" : ""}>
      <dt>{term}</dt>
      <dd>{value}</dd>
    </div>
  );
}
