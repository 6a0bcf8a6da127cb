import type { CSSProperties, ReactNode } from "react";
import { hashOf, useRoute } from "../app/router";
import { rangeWords } from "../charts/ranges";

/** Links between views keep the time range that was chosen. */
function useHref(...path: string[]): string {
  const { query } = useRoute();
  return hashOf(path, rangeWords(query));
}

interface GpuLinkProps {
  uuid: string;
  /** For a link without text of its own. */
  label?: string;
  className?: string;
  style?: CSSProperties | undefined;
  children?: ReactNode;
}

export function GpuLink({ uuid, label, className, style, children }: GpuLinkProps) {
  return (
    <a href={useHref("gpus", uuid)} title={label ?? uuid} aria-label={label} className={className} style={style}>
      {children}
    </a>
  );
}

export function HostLink({ hostname }: { hostname: string }) {
  return <a href={useHref("hosts", hostname)}>{hostname}</a>;
}
