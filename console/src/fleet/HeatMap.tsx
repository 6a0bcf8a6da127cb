import { type KeyboardEvent, useMemo } from "react";
import type { Series } from "../api/series";
import type { Rollup } from "../api/types";
import { type Range, windowMs } from "../charts/ranges";
import { percent } from "../format/numbers";
import { Card } from "../parts/Card";
import { HostLink } from "../parts/links";
import { GpuCell } from "./GpuCell";
import { HEAT_STEPS, heatRows } from "./heat";
import { HeatStrip } from "./HeatStrip";
import type { HostNow } from "./shape";

interface HeatMapProps {
  hosts: readonly HostNow[];
  /** Rollups of hosts, for the strips. */
  history: Series<Rollup> | undefined;
  range: Range;
}

// A day by the minute is more than a strip can show, and a lot to load for many hosts.
const LONGEST_BY_MINUTE_MS = 6 * 3_600_000;

export function heatRange(range: Range): Range {
  return range.spanMs <= LONGEST_BY_MINUTE_MS ? range : { ...range, name: `${range.name} by hour`, resolution: "1h" };
}

/** A row per host: each of its GPUs now, and the host over the page's range. */
export function HeatMap({ hosts, history, range }: HeatMapProps) {
  const stepMs = windowMs(range.resolution);
  const windows = Math.max(1, Math.ceil(range.spanMs / stepMs));
  const strips = useMemo(
    () => heatRows(history?.rows ?? [], history?.endMs ?? 0, windows, stepMs),
    [history, windows, stepMs],
  );
  const empty = useMemo(() => Array.from({ length: windows }, () => null), [windows]);
  const period = range.endMs === undefined ? range.title.toLowerCase() : "zoomed stretch";
  return (
    <Card title="Utilisation by host" className="heat" aside={<Scale />}>
      <div className="heat-scroll">
        <table onKeyDown={moveFocus}>
          <thead>
            <tr>
              <th scope="col">Host</th>
              <th scope="col">GPUs now</th>
              <th scope="col" className="number">
                Mean
              </th>
              <th scope="col">Mean, {period}</th>
            </tr>
          </thead>
          <tbody>
            {hosts.map((host) => (
              <tr key={host.hostname}>
                <th scope="row">
                  <HostLink hostname={host.hostname} />
                </th>
                <td>
                  <div className="cells">
                    {host.gpus.map((gpu) => (
                      <GpuCell key={gpu.uuid} gpu={gpu} />
                    ))}
                  </div>
                </td>
                <td className="number">{percent(host.utilisation)}</td>
                <td className="strip-cell">
                  <HeatStrip
                    values={strips.get(host.hostname) ?? empty}
                    label={`Mean utilisation of ${host.hostname} over the ${period}`}
                  />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function Scale() {
  return (
    <div className="heat-scale">
      <span aria-hidden="true">
        0 %
        {Array.from({ length: HEAT_STEPS }, (_, step) => (
          <i key={step} style={{ background: `var(--heat-${step})` }} />
        ))}
        100 %
      </span>
      <span title="Nothing came from this GPU for a minute, while others reported">
        <b className="cell silent" /> silent
      </span>
      <span title="No value was stored for this time">
        <b className="cell" /> no data
      </span>
    </div>
  );
}

/** Arrow keys walk over the cells as they lie on the screen. */
function moveFocus(event: KeyboardEvent<HTMLTableElement>): void {
  const from = event.target as HTMLElement;
  if (!from.classList.contains("cell")) return;
  const row = from.closest("tr");
  const column = [...(from.parentElement?.children ?? [])].indexOf(from);
  const sameColumn = (other: Element | null | undefined) => other?.querySelectorAll<HTMLElement>(".cell")[column];
  const neighbours: Record<string, () => Element | null | undefined> = {
    ArrowLeft: () => from.previousElementSibling,
    ArrowRight: () => from.nextElementSibling,
    ArrowUp: () => sameColumn(row?.previousElementSibling),
    ArrowDown: () => sameColumn(row?.nextElementSibling),
  };
  const target = neighbours[event.key]?.();
  if (target instanceof HTMLElement) {
    event.preventDefault();
    target.focus();
  }
}
