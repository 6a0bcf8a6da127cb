import { useEffect, useRef } from "react";
import { useShownTheme } from "../app/theme";
import { colour } from "../charts/style";
import { HEAT_STEPS, heatStep } from "./heat";

/** One host's utilisation over time, a column a minute. One canvas pixel per column; CSS stretches it. */
export function HeatStrip({ values, label }: { values: readonly (number | null)[]; label: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useShownTheme();
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const ramp = Array.from({ length: HEAT_STEPS }, (_, step) => colour(`--heat-${step}`));
    context.clearRect(0, 0, values.length, 1);
    values.forEach((value, column) => {
      if (value === null) return;
      context.fillStyle = ramp[heatStep(value)] ?? "";
      context.fillRect(column, 0, 1, 1);
    });
  }, [values, theme]);
  return <canvas className="strip" ref={canvas} width={values.length} height={1} role="img" aria-label={label} />;
}
