import type { ReactNode } from "react";

interface KpiProps {
  label: string;
  value: ReactNode;
  note?: ReactNode;
  tone?: "good" | "warning" | "critical" | undefined;
  title?: string | undefined;
  wide?: boolean;
}

export function Kpi({ label, value, note, tone, title, wide = false }: KpiProps) {
  return (
    <div className={`kpi ${tone ?? ""} ${wide ? "wide" : ""}`} title={title}>
      <dt>{label}</dt>
      <dd>
        {value}
        {note !== undefined && <small>{note}</small>}
      </dd>
    </div>
  );
}
