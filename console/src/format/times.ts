import { NOTHING } from "./numbers";

const MINUTE_S = 60;
const HOUR_S = 3_600;
const DAY_S = 86_400;

/** How long, in the two largest units that matter: "0.8 s", "42 s", "3 min 5 s", "42 min", "2 h 10 min", "4 d 3 h". */
export function duration(ms: number | undefined | null): string {
  if (typeof ms !== "number" || !Number.isFinite(ms)) return NOTHING;
  const seconds = Math.max(0, ms / 1_000);
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < MINUTE_S) return `${whole} s`;
  if (whole >= 10 * MINUTE_S && whole < HOUR_S) return `${Math.floor(whole / MINUTE_S)} min`;
  if (whole < HOUR_S) return pair(whole, MINUTE_S, "min", 1, "s");
  if (whole < DAY_S) return pair(whole, HOUR_S, "h", MINUTE_S, "min");
  return pair(whole, DAY_S, "d", HOUR_S, "h");
}

function pair(seconds: number, large: number, largeName: string, small: number, smallName: string): string {
  const first = Math.floor(seconds / large);
  const rest = Math.floor((seconds % large) / small);
  return rest === 0 ? `${first} ${largeName}` : `${first} ${largeName} ${rest} ${smallName}`;
}

export function ago(timeMs: number | undefined, nowMs: number): string {
  return timeMs === undefined || Number.isNaN(timeMs) ? NOTHING : `${duration(nowMs - timeMs)} ago`;
}

/** Local wall-clock time; with the date when that is not today's. */
export function clockTime(timeMs: number | undefined, nowMs: number): string {
  if (timeMs === undefined || Number.isNaN(timeMs)) return NOTHING;
  const time = new Date(timeMs);
  const clock = `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
  return time.toDateString() === new Date(nowMs).toDateString() ? clock : `${isoDate(time)} ${clock}`;
}

/** The browser's zone, with what it differs from UTC at this time: "Europe/Berlin (UTC+2)". */
export function timeZone(time: Date): string {
  const minutes = -time.getTimezoneOffset();
  const whole = Math.floor(Math.abs(minutes) / 60);
  const rest = Math.abs(minutes) % 60;
  const offset = minutes === 0 ? "" : `${minutes < 0 ? "-" : "+"}${whole}${rest === 0 ? "" : `:${two(rest)}`}`;
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return name === "UTC" || name === "Etc/UTC" ? "UTC" : `${name} (UTC${offset})`;
}

export function isoDate(time: Date): string {
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}
