/** Light, dark, or as the system says. The choice is kept in the browser and set on <html data-theme>. */

import { useSyncExternalStore } from "react";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const STORAGE_KEY = "millstream-theme";
const systemIsDark = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();
let chosen: Theme = stored();

export function startTheme(): void {
  apply();
  systemIsDark.addEventListener("change", apply);
}

export function chooseTheme(theme: Theme): void {
  chosen = theme;
  try {
    localStorage.setItem(STORAGE_KEY, theme);
  } catch {
    // Private windows may refuse storage; the choice then lasts as long as the page.
  }
  apply();
}

export function useTheme(): Theme {
  return useSyncExternalStore(subscribe, () => chosen);
}

/** "light" or "dark", whatever was chosen: for what is drawn on a canvas. */
export function useShownTheme(): "light" | "dark" {
  return useSyncExternalStore(subscribe, shown);
}

function shown(): "light" | "dark" {
  if (chosen !== "system") return chosen;
  return systemIsDark.matches ? "dark" : "light";
}

function apply(): void {
  document.documentElement.dataset["theme"] = shown();
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function stored(): Theme {
  try {
    const value = localStorage.getItem(STORAGE_KEY);
    return THEMES.find((theme) => theme === value) ?? "system";
  } catch {
    return "system";
  }
}
