import { PageHead } from "../parts/PageHead";
import { State } from "../parts/State";
import type { PipelineStatus } from "../pipeline/status";

/** The API answers and has nothing: say which part of the way the data is missing on. */
export function NoData({ pipeline }: { pipeline: PipelineStatus | undefined }) {
  return (
    <>
      <PageHead title="Fleet" />
      <State title="No telemetry yet">
        {pipeline?.running ? (
          <p>The pipeline is running and waits for records. Start a streamer:</p>
        ) : (
          <p>The pipeline is not running. Start it, and a streamer:</p>
        )}
        {!pipeline?.running && <code>millstream pipeline run</code>}
        <code>millstream telemetry stream --hosts 4</code>
        <p>This page shows the fleet as soon as the first points are stored.</p>
      </State>
    </>
  );
}
