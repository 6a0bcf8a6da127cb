/** Now, by the server's clock: a browser elsewhere may be minutes off, and ages would be nonsense. */

// The Date header counts whole seconds, so a smaller difference says nothing.
const TRUSTED_SKEW_MS = 2_000;

let skewMs = 0;

export function observeServerDate(header: string | null): void {
  const server = header === null ? Number.NaN : Date.parse(header);
  if (Number.isNaN(server)) return;
  const difference = server - Date.now();
  skewMs = Math.abs(difference) > TRUSTED_SKEW_MS ? difference : 0;
}

export function now(): number {
  return Date.now() + skewMs;
}
