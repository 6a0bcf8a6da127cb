import { type HealthEvent, SEVERITIES, type Severity } from "../api/types";

export function severityNamed(name: string | undefined): Severity | undefined {
  return SEVERITIES.find((severity) => severity === name);
}

export function withSeverity(events: readonly HealthEvent[], severity: Severity | undefined): HealthEvent[] {
  return events.filter((event) => severity === undefined || event.severity === severity);
}

/** The evidence as lines of "name: value"; the API may give it as JSON text. */
export function evidenceLines(evidence: unknown): [string, string][] {
  const value = typeof evidence === "string" ? parsed(evidence) : evidence;
  if (value === null || value === undefined || value === "") return [];
  if (typeof value !== "object" || Array.isArray(value)) return [["evidence", text(value)]];
  return Object.entries(value).map(([name, item]) => [name.replaceAll("_", " "), text(item)]);
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return json;
  }
}

function text(value: unknown): string {
  if (typeof value === "number") return value.toLocaleString("en-US", { maximumFractionDigits: 1 });
  return typeof value === "string" ? value : JSON.stringify(value);
}
