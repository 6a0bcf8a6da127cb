import { now } from "../api/clock";
import { ago } from "../format/times";
import type { PipelineStatus } from "./status";

/** What went wrong last: an alarm while the job is held up by it, a note afterwards. */
export function LastError({ status }: { status: PipelineStatus }) {
  const error = status.lastError;
  if (error === undefined) return null;
  const isOver = status.running && status.state !== "retrying";
  return (
    <p className={`problem ${isOver ? "over" : ""}`}>
      {isOver && "Overcome: "}
      {error.message}
      {error.atMs !== undefined && <small> {ago(error.atMs, now())}</small>}
    </p>
  );
}
