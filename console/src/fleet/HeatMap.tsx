import { type KeyboardEvent, useMemo } from "react";
import type { Series } from "../api/series";
import type { Rollup } from "../api/types";
import { percent } from "../format/numbers";
import { Card } from "../parts/Card";
import { HostLink } from "../parts/links";
import { GpuCell } from "./GpuCell";
import { HEAT_STEPS, heatRows } from "./heat";
import { HeatStrip } from "./HeatStrip";
import { type HostNow, isSilent } from "./shape";

const MINUTES = 60;

interface HeatMapProps {
  hosts: readonly HostNow[];
  newestMs: number | undefined;
  /** Rollups of hosts, for the strips. */
  history: Series<Rollup> | undefined;
}

/** A row per host: each of its GPUs now, and the host's last hour. */
export function HeatMap({ hosts, newestMs, history }: HeatMapProps) {
  const strips = useMemo(
    () => heatRows(history?.rows ?? [], history?.endMs ?? 0, MINUTES),
    [history],
  );
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
              <th scope="col">Last {MINUTES} minutes</th>
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
                      <GpuCell key={gpu.uuid} gpu={gpu} silent={isSilent(gpu, newestMs)} />
                    ))}
                  </div>
                </td>
                <td className="number">{percent(host.utilisation)}</td>
                <td className="strip-cell">
                  <HeatStrip
                    values={strips.get(host.hostname) ?? EMPTY}
                    label={`Mean utilisation of ${host.hostname} over the last ${MINUTES} minutes`}
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

const EMPTY: readonly null[] = Array.from({ length: MINUTES }, () => null);

function Scale() {
  return (
    <div className="heat-scale" aria-hidden="true">
      0 %
      {Array.from({ length: HEAT_STEPS }, (_, step) => (
        <i key={step} style={{ background: `var(--heat-${step})` }} />
      ))}
      100 %
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
