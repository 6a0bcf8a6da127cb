/** Colours of the utilisation heat map, and the rows of its history. Pure. */

import type { Rollup } from "../api/types";

/** How many steps the ramp in the style sheet has: `--heat-0` to `--heat-9`. */
export const HEAT_STEPS = 10;

export function heatStep(utilisation: number): number {
  const step = Math.floor((Math.min(100, Math.max(0, utilisation)) / 100) * HEAT_STEPS);
  return Math.min(HEAT_STEPS - 1, step);
}

/** Host -> mean utilisation per window, oldest first, null where the window has no rollup. */
export function heatRows(
  rollups: readonly Rollup[],
  endMs: number,
  windows: number,
  windowMs: number,
): Map<string, (number | null)[]> {
  const last = Math.floor(endMs / windowMs);
  const rows = new Map<string, (number | null)[]>();
  for (const rollup of rollups) {
    const column = windows - 1 - (last - Math.floor(Date.parse(rollup.window_start) / windowMs));
    if (column < 0 || column >= windows) continue;
    const row = rows.get(rollup.key) ?? Array.from({ length: windows }, () => null);
    row[column] = rollup.mean;
    rows.set(rollup.key, row);
  }
  return rows;
}
