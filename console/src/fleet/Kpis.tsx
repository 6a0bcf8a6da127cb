import { now } from "../api/clock";
import { SEVERITIES } from "../api/types";
import { hashOf } from "../app/router";
import type { Events } from "../events/useEvents";
import { compact, fixed } from "../format/numbers";
import { duration } from "../format/times";
import { Kpi } from "../parts/Kpi";
import type { PipelineStatus } from "../pipeline/status";
import { ages, type GpuNow, percentile } from "./shape";

interface KpisProps {
  gpus: readonly GpuNow[];
  hosts: number;
  pipeline: PipelineStatus | undefined;
  events: Events | undefined;
}

// Older than this is not fresh, whatever the reason.
const OLD_MS = 5 * 60_000;
const LAG_WORTH_A_WARNING = 100_000;

export function Kpis({ gpus, hosts, pipeline, events }: KpisProps) {
  const silent = gpus.filter((gpu) => gpu.silent).length;
  const age = ages(gpus, now());
  const lag = pipeline?.lag;
  return (
    <dl className="kpis">
      <Kpi label="Hosts" value={fixed(hosts)} />
      <Kpi
        label="GPUs"
        value={fixed(gpus.length)}
        note={silent === 0 ? "all reporting" : `${silent} silent`}
        tone={silent === 0 ? undefined : "warning"}
      />
      <Kpi
        label="Points / s"
        value={compact(pipeline?.rowsPerSecond)}
        note={pipeline === undefined || pipeline.running ? undefined : "pipeline stopped"}
        tone={pipeline === undefined || pipeline.running ? undefined : "critical"}
      />
      <Kpi
        label="Lag"
        value={compact(lag)}
        title="Records in the topic that the pipeline has not read yet"
        tone={lag !== undefined && lag > LAG_WORTH_A_WARNING ? "warning" : undefined}
      />
      <Kpi
        label="Freshness p50"
        value={duration(percentile(age, 0.5))}
        tone={(percentile(age, 0.5) ?? 0) > OLD_MS ? "warning" : undefined}
        title="Age of each GPU's newest stored value: half of the GPUs are fresher than this"
      />
      <Kpi
        label="Freshness p99"
        value={duration(percentile(age, 0.99))}
        title="Age of each GPU's newest stored value: 99 % of the GPUs are fresher than this"
      />
      <ActiveEvents events={events} />
    </dl>
  );
}

function ActiveEvents({ events }: { events: Events | undefined }) {
  const active = events?.active;
  return (
    <div className="kpi events-kpi">
      <dt>Active events</dt>
      <dd>
        {SEVERITIES.map((severity) => (
          <a key={severity} className={`count ${severity}`} href={hashOf(["events"], { severity })}>
            <b>{active?.filter((event) => event.severity === severity).length ?? "–"}</b> {severity}
          </a>
        ))}
      </dd>
    </div>
  );
}
