import { celsius, percent, watts } from "../format/numbers";
import type { Column } from "../parts/List";
import type { GpuNow } from "./shape";

/** What lists of GPUs say of each. */
export const utilisation: Column<GpuNow> = {
  title: "Utilisation",
  cell: (gpu) => percent(gpu.utilisation),
  isNumber: true,
};

export const temperature: Column<GpuNow> = {
  title: "Temperature",
  cell: (gpu) => celsius(gpu.temperature),
  isNumber: true,
};

export const power: Column<GpuNow> = { title: "Power", cell: (gpu) => watts(gpu.power), isNumber: true };
