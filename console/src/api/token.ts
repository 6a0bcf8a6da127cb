/** The token that the query API may want. It is kept for as long as the browser's tab. */

import { useSyncExternalStore } from "react";

const STORAGE_KEY = "millstream-token";
const listeners = new Set<() => void>();
let token = stored();
let wanted = false;

export function authorization(): Record<string, string> {
  return token === "" ? {} : { authorization: `Bearer ${token}` };
}

/** The API refused what it was given, or was given nothing. */
export function askForToken(): void {
  change(true);
}

export function giveToken(given: string): void {
  token = given.trim();
  try {
    sessionStorage.setItem(STORAGE_KEY, token);
  } catch {
    // Without storage the token lasts as long as the page.
  }
  change(false);
}

/** Whether somebody has to say the token before there is anything to show. */
export function useTokenWanted(): boolean {
  return useSyncExternalStore(subscribe, () => wanted);
}

export function hasToken(): boolean {
  return token !== "";
}

function change(next: boolean): void {
  if (wanted === next) return;
  wanted = next;
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function stored(): string {
  try {
    return sessionStorage.getItem(STORAGE_KEY) ?? "";
  } catch {
    return "";
  }
}
