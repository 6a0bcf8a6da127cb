import { SEVERITIES, type Severity } from "../api/types";
import { changeQuery } from "../app/router";
import type { Events } from "./useEvents";

interface SeverityChoiceProps {
  events: Events | undefined;
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

function count(events: Events | undefined, severity: Severity | undefined): number {
  const all = [...(events?.active ?? []), ...(events?.ended ?? [])];
  return severity === undefined ? all.length : all.filter((event) => event.severity === severity).length;
}
