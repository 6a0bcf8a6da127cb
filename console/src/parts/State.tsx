import type { ReactNode } from "react";
import type { ApiError } from "../api/client";

/** A panel's place when there is nothing to show: why, and what to do about it. */
export function State({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="state" role="status">
      <strong>{title}</strong>
      {children !== undefined && <div>{children}</div>}
    </div>
  );
}

/** Before the first data: on its way, or why it does not come. */
export function Waiting({ error }: { error: ApiError | undefined }) {
  if (error === undefined) return <Loading />;
  return (
    <State title="Nothing to show yet">
      <p>{error.message}</p>
      <p>
        Is <code>millstream pipeline api</code> running where this page came from?
      </p>
    </State>
  );
}

export function Loading() {
  return (
    <div className="state" role="status" aria-busy="true">
      <span className="spinner" aria-hidden="true" />
      Loading
    </div>
  );
}
