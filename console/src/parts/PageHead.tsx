import { type ReactNode, useEffect } from "react";

interface PageHeadProps {
  title: string;
  note?: ReactNode;
  children?: ReactNode;
}

export function PageHead({ title, note, children }: PageHeadProps) {
  useEffect(() => {
    document.title = `${title} · Millstream`;
  }, [title]);
  return (
    <header className="page-head">
      <h1>{title}</h1>
      {note !== undefined && <p>{note}</p>}
      <div className="controls">{children}</div>
    </header>
  );
}
