import { get } from "../api/client";
import { type Polled, usePoll } from "../api/poll";
import { remember } from "./history";
import { type PipelineStatus, readStatus } from "./status";

const EVERY_MS = 2_000;

export function usePipeline(): Polled<PipelineStatus> {
  return usePoll<PipelineStatus>(
    "pipeline",
    async (signal) => {
      const status = readStatus(await get<unknown>("api/v1/pipeline", {}, signal));
      remember(status);
      return status;
    },
    EVERY_MS,
  );
}
