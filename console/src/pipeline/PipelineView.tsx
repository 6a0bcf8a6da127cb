import type { Route } from "../app/router";
import { RangeChoice } from "../charts/RangeChoice";
import { type Range, rangeOf } from "../charts/ranges";
import { fixed } from "../format/numbers";
import { Card } from "../parts/Card";
import { PageHead } from "../parts/PageHead";
import { Loading, State } from "../parts/State";
import { Facts } from "./Facts";
import { LagBars } from "./LagBars";
import { LastError } from "./LastError";
import { Running } from "./Running";
import type { Count, PipelineStatus } from "./status";
import { LagChart, ThroughputChart } from "./Throughput";
import { useHistory } from "./useHistory";
import { usePipeline } from "./usePipeline";

export function PipelineView({ route }: { route: Route }) {
  const pipeline = usePipeline();
  const status = pipeline.data;
  if (status === undefined) {
    if (pipeline.error === undefined) return <Loading />;
    return (
      <>
        <PageHead title="Pipeline" />
        <State title="No report from the pipeline">{pipeline.error.message}</State>
      </>
    );
  }
  return <Report status={status} range={rangeOf(route.query)} />;
}

function Report({ status, range }: { status: PipelineStatus; range: Range }) {
  const history = useHistory(range, status.updatedMs);
  return (
    <>
      <PageHead title="Pipeline">
        <RangeChoice range={range} />
      </PageHead>
      <Card title="Now" aside={<Running status={status} />}>
        <Facts status={status} />
        <LastError status={status} />
      </Card>
      <div className="columns">
        <ThroughputChart history={history} />
        <LagChart history={history} />
      </div>
      <div className="columns">
        <Card title="Lag per partition">
          {status.partitions.length > 0 ? (
            <LagBars partitions={status.partitions} />
          ) : (
            <State title="No partitions reported yet" />
          )}
        </Card>
        <Card title="Records since the start">
          <Counts counts={status.counts} />
          {status.badByReason.length > 0 && <h3>Bad records by reason</h3>}
          <Counts counts={status.badByReason} />
        </Card>
      </div>
    </>
  );
}

function Counts({ counts }: { counts: readonly Count[] }) {
  return (
    <table className="list">
      <tbody>
        {counts.map(([name, count]) => (
          <tr key={name}>
            <th scope="row">{name.replaceAll("_", " ")}</th>
            <td className="number">{fixed(count)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
