import { changeQuery } from "../app/router";
import { type Range, RANGES } from "./ranges";

/** Which part of the past the charts show; kept in the address, so that a link shows the same. */
export function RangeChoice({ range }: { range: Range }) {
  return (
    <fieldset className="segments">
      <legend className="visually-hidden">Time range</legend>
      {RANGES.map((choice) => (
        <label key={choice.name} title={choice.title}>
          <input
            type="radio"
            name="range"
            value={choice.name}
            checked={choice.name === range.name}
            onChange={() => changeQuery({ range: choice.name })}
          />
          <span>{choice.name}</span>
        </label>
      ))}
    </fieldset>
  );
}
