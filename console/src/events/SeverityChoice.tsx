import { type HealthEvent, SEVERITIES, type Severity } from "../api/types";
import { changeQuery } from "../app/router";

interface SeverityChoiceProps {
  events: readonly HealthEvent[];
  severity: Severity | undefined;
}

export function SeverityChoice({ events, severity }: SeverityChoiceProps) {
  return (
    <fieldset className="segments">
      <legend className="visually-hidden">Severity</legend>
      {[undefined, ...SEVERITIES].map((choice) => (
        <label key={choice ?? "all"}>
          <input
            type="radio"
            name="severity"
            value={choice ?? "all"}
            checked={choice === severity}
            onChange={() => changeQuery({ severity: choice })}
          />
          <span>
            {choice ?? "all"} <small>{count(events, choice)}</small>
          </span>
        </label>
      ))}
    </fieldset>
  );
}

function count(events: readonly HealthEvent[], severity: Severity | undefined): number {
  return severity === undefined ? events.length : events.filter((event) => event.severity === severity).length;
}
