import { retryNow, useConnection } from "../api/connection";
import { clockTime } from "../format/times";

/** Shown while the query API fails. What was loaded before stays on the page, and is marked as old. */
export function ConnectionBanner() {
  const { downSince, reason } = useConnection();
  if (downSince === null) return null;
  return (
    <div className="banner" role="alert">
      <strong>No fresh data since {clockTime(downSince, Date.now())}:</strong> <span>{reason}.</span>{" "}
      <span>Trying again by itself.</span>
      <button type="button" onClick={retryNow}>
        Try now
      </button>
    </div>
  );
}
