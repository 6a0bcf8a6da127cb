import { Card } from "../parts/Card";
import { type Column, List } from "../parts/List";
import { GpuLink } from "../parts/links";
import { power, temperature, utilisation } from "./gpuColumns";
import { type GpuNow, hottest, idlest } from "./shape";

const ROWS = 5;

export function Extremes({ gpus }: { gpus: readonly GpuNow[] }) {
  return (
    <>
      <Ranking title="Hottest GPUs" gpus={hottest(gpus, ROWS)} />
      <Ranking title="Idlest GPUs" gpus={idlest(gpus, ROWS)} />
    </>
  );
}

const columns: readonly [Column<GpuNow>, ...Column<GpuNow>[]] = [
  {
    title: "GPU",
    cell: (gpu) => (
      <GpuLink uuid={gpu.uuid}>
        {gpu.hostname} / {gpu.gpuId || gpu.uuid}
      </GpuLink>
    ),
  },
  { ...temperature, title: "Temp" },
  { ...utilisation, title: "Util" },
  power,
];

function Ranking({ title, gpus }: { title: string; gpus: readonly GpuNow[] }) {
  return (
    <Card title={title}>
      <List rows={gpus} keyOf={(gpu) => gpu.uuid} columns={columns} />
    </Card>
  );
}
