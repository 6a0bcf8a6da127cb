import type { Polled } from "../api/poll";
import type { Range } from "../charts/ranges";
import { Card } from "../parts/Card";
import { Loading, State } from "../parts/State";
import { Facts } from "./Facts";
import { LagBars } from "./LagBars";
import { LastError } from "./LastError";
import { Running } from "./Running";
import { ThroughputChart } from "./Throughput";
import type { PipelineStatus } from "./status";
import { useHistory } from "./useHistory";

export function PipelinePanel({ pipeline, range }: { pipeline: Polled<PipelineStatus>; range: Range }) {
  const status = pipeline.data;
  const history = useHistory(range, status?.updatedMs);
  return (
    <Card title="Pipeline" className="pipeline" aside={status && <Running status={status} />}>
      {status !== undefined ? (
        <>
          <Facts status={status} />
          <ThroughputChart history={history} height={84} />
          {status.partitions.length > 0 && <LagBars partitions={status.partitions} />}
          <LastError status={status} />
        </>
      ) : pipeline.error === undefined ? (
        <Loading />
      ) : (
        <State title="No report from the pipeline">{pipeline.error.message}</State>
      )}
    </Card>
  );
}
