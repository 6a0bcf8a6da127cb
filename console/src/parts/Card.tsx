import type { ReactNode } from "react";

interface CardProps {
  title: string;
  className?: string;
  /** Beside the title, at the right. */
  aside?: ReactNode;
  children: ReactNode;
}

export function Card({ title, className = "", aside, children }: CardProps) {
  return (
    <section className={`card ${className}`} aria-label={title}>
      <header>
        <h2>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}
