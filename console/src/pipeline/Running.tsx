import type { PipelineStatus } from "./status";

export function Running({ status }: { status: PipelineStatus }) {
  const tone = !status.running ? "no" : status.state === "retrying" ? "unsure" : "yes";
  return <span className={`running ${tone}`}>{status.state}</span>;
}
