import type { Polled } from "../api/poll";
import { Card } from "../parts/Card";
import { Loading, State } from "../parts/State";
import { Facts } from "./Facts";
import { LagBars } from "./LagBars";
import { LastError } from "./LastError";
import { Running } from "./Running";
import { ThroughputChart } from "./Throughput";
import type { PipelineStatus } from "./status";

export function PipelinePanel({ pipeline }: { pipeline: Polled<PipelineStatus> }) {
  const status = pipeline.data;
  return (
    <Card title="Pipeline" className="pipeline" aside={status && <Running status={status} />}>
      {status !== undefined ? (
        <>
          <Facts status={status} />
          <ThroughputChart height={84} />
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
