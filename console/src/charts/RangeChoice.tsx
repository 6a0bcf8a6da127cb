import { now } from "../api/clock";
import { changeQuery } from "../app/router";
import { clockTime } from "../format/times";
import { type Range, RANGES } from "./ranges";

/** Which part of the past the whole page shows; kept in the address, so that a link shows the same. */
export function RangeChoice({ range }: { range: Range }) {
  const toMs = range.endMs;
  return (
    <>
      {toMs !== undefined && (
        <button type="button" className="zoomed" title="Back to a range that moves with the time" onClick={leaveZoom}>
          {clockTime(toMs - range.spanMs, now())} to {clockTime(toMs, now())} <b aria-hidden="true">×</b>
          <span className="visually-hidden">, end the zoom</span>
        </button>
      )}
      <fieldset className="segments">
        <legend className="visually-hidden">Time range</legend>
        {RANGES.map((choice) => (
          <label key={choice.name} title={choice.title}>
            <input
              type="radio"
              name="range"
              value={choice.name}
              checked={choice.name === range.name}
              onChange={() => changeQuery({ range: choice.name, from: undefined, to: undefined })}
            />
            <span>{choice.name}</span>
          </label>
        ))}
      </fieldset>
    </>
  );
}

export function leaveZoom(): void {
  changeQuery({ from: undefined, to: undefined });
}
