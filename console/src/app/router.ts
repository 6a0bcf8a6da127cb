/** Routes live in the address's hash, `#/gpus/GPU-1?range=1h`, so that any static server can serve the page. */

import { useSyncExternalStore } from "react";

export interface Route {
  /** Decoded segments of the path: `["gpus", "GPU-1"]`. */
  path: readonly string[];
  query: Readonly<Record<string, string>>;
}

export function parseHash(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return {
    path: path.split("/").filter(Boolean).map(decoded),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

export function hashOf(path: readonly string[], query: Readonly<Record<string, string>> = {}): string {
  const words = new URLSearchParams(query).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${words && `?${words}`}`;
}

let known = { hash: "", route: parseHash("") };

function current(): Route {
  if (known.hash !== location.hash) known = { hash: location.hash, route: parseHash(location.hash) };
  return known.route;
}

export function useRoute(): Route {
  return useSyncExternalStore((listener) => {
    window.addEventListener("hashchange", listener);
    return () => window.removeEventListener("hashchange", listener);
  }, current);
}

/** Change some words of the query and stay on the view; undefined removes a word. */
export function changeQuery(changes: Readonly<Record<string, string | undefined>>): void {
  const { path, query } = current();
  const merged = Object.entries({ ...query, ...changes }).filter(
    (entry): entry is [string, string] => entry[1] !== undefined,
  );
  location.replace(hashOf(path, Object.fromEntries(merged)));
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
