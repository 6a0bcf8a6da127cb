/** The DCGM metrics that the page knows by name; any other is shown as the API names it. */

export const UTILISATION = "DCGM_FI_DEV_GPU_UTIL";
export const TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP";
export const POWER = "DCGM_FI_DEV_POWER_USAGE";

export interface MetricInfo {
  title: string;
  unit: string;
  /** One of `unit` in the unit that the API counts in; 1 when absent. */
  of?: number;
  /** The scale's least extent, so that noise on a flat line does not look like news. */
  scale?: readonly [number, number];
}

const KNOWN: Record<string, MetricInfo> = {
  [UTILISATION]: { title: "Utilisation", unit: "%", scale: [0, 100] },
  [TEMPERATURE]: { title: "Temperature", unit: "°C", scale: [30, 80] },
  [POWER]: { title: "Power", unit: "W", scale: [0, 400] },
  DCGM_FI_DEV_FB_USED: { title: "Memory used", unit: "GiB", of: 1_024, scale: [0, 1] },
  DCGM_FI_DEV_FB_FREE: { title: "Memory free", unit: "GiB", of: 1_024, scale: [0, 1] },
  DCGM_FI_DEV_MEM_COPY_UTIL: { title: "Memory copy utilisation", unit: "%", scale: [0, 100] },
  DCGM_FI_DEV_ENC_UTIL: { title: "Encoder utilisation", unit: "%", scale: [0, 100] },
  DCGM_FI_DEV_DEC_UTIL: { title: "Decoder utilisation", unit: "%", scale: [0, 100] },
  DCGM_FI_DEV_MEMORY_TEMP: { title: "Memory temperature", unit: "°C", scale: [30, 80] },
  DCGM_FI_DEV_SM_CLOCK: { title: "SM clock", unit: "MHz" },
  DCGM_FI_DEV_MEM_CLOCK: { title: "Memory clock", unit: "MHz" },
  DCGM_FI_DEV_XID_ERRORS: { title: "XID errors", unit: "", scale: [0, 1] },
  DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION: { title: "Total energy", unit: "kWh", of: 3.6e9 },
  DCGM_FI_DEV_PCIE_REPLAY_COUNTER: { title: "PCIe replays", unit: "", scale: [0, 1] },
  DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL: { title: "NVLink traffic", unit: "GB", of: 1_000 },
  DCGM_FI_DEV_FB_RESERVED: { title: "Memory reserved", unit: "GiB", of: 1_024, scale: [0, 1] },
  DCGM_FI_PROF_GR_ENGINE_ACTIVE: { title: "Graphics engine active", unit: "%", of: 0.01, scale: [0, 100] },
  DCGM_FI_PROF_PIPE_TENSOR_ACTIVE: { title: "Tensor cores active", unit: "%", of: 0.01, scale: [0, 100] },
  DCGM_FI_PROF_DRAM_ACTIVE: { title: "Device memory active", unit: "%", of: 0.01, scale: [0, 100] },
  DCGM_FI_PROF_PCIE_TX_BYTES: { title: "PCIe sent", unit: "GB/s", of: 1e9 },
  DCGM_FI_PROF_PCIE_RX_BYTES: { title: "PCIe received", unit: "GB/s", of: 1e9 },
  DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS: { title: "Rows remapped, uncorrectable", unit: "", scale: [0, 1] },
  DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS: { title: "Rows remapped, correctable", unit: "", scale: [0, 1] },
  DCGM_FI_DEV_ROW_REMAP_FAILURE: { title: "Row remapping failed", unit: "", scale: [0, 1] },
};

const ORDER = Object.keys(KNOWN);

export function metricInfo(metric: string): MetricInfo {
  return KNOWN[metric] ?? { title: metric, unit: "" };
}

/** Known metrics first, in the order a reader looks for them. */
export function inReadingOrder(metrics: Iterable<string>): string[] {
  const place = (metric: string) => (ORDER.includes(metric) ? ORDER.indexOf(metric) : ORDER.length);
  return [...metrics].sort((left, right) => place(left) - place(right) || left.localeCompare(right));
}
