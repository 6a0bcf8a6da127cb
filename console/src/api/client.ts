import { observeServerDate } from "./clock";
import { reportAnswer, reportFailure } from "./connection";
import { askForToken, authorization } from "./token";

const TIMEOUT_MS = 15_000;

export class ApiError extends Error {
  constructor(
    message: string,
    /** HTTP status, or 0 when there was no answer. */
    readonly status: number,
  ) {
    super(message);
  }
}

export type Query = Record<string, string | number | undefined>;

/** GET one address of the query API, relative to the page. */
export async function get<T>(path: string, query: Query, signal: AbortSignal): Promise<T> {
  const response = await request(`${path}${queryString(query)}`, signal);
  if (!response.ok) throw await refusal(response);
  try {
    const answer = (await response.json()) as T;
    reportAnswer();
    return answer;
  } catch (error) {
    if (signal.aborted) throw error;
    throw failure("the answer of the query API is not JSON", response.status);
  }
}

export function queryString(query: Query): string {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") words.set(name, String(value));
  }
  const text = words.toString();
  return text && `?${text}`;
}

async function request(address: string, signal: AbortSignal): Promise<Response> {
  try {
    const response = await fetch(address, {
      headers: { accept: "application/json", ...authorization() },
      cache: "no-store",
      signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
    });
    observeServerDate(response.headers.get("date"));
    return response;
  } catch (error) {
    if (signal.aborted) throw error;
    throw failure("the query API does not answer", 0);
  }
}

/** An answer that says no: the server is there, but it may be unable to serve (5xx). */
async function refusal(response: Response): Promise<ApiError> {
  let reason = `the query API answered ${response.status}`;
  try {
    const body = (await response.json()) as { error?: unknown };
    if (typeof body.error === "string") reason = body.error;
  } catch {
    // Not JSON: the status has to do.
  }
  if (response.status >= 500) return failure(reason, response.status);
  if (response.status === 401) askForToken();
  reportAnswer();
  return new ApiError(reason, response.status);
}

function failure(reason: string, status: number): ApiError {
  reportFailure(reason);
  return new ApiError(reason, status);
}
