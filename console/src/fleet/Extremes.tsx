import { celsius, percent, watts } from "../format/numbers";
import { Card } from "../parts/Card";
import { GpuLink } from "../parts/links";
import { type GpuNow, hottest, idlest, isSilent } from "./shape";

const ROWS = 5;

interface ExtremesProps {
  gpus: readonly GpuNow[];
  newestMs: number | undefined;
}

export function Extremes({ gpus, newestMs }: ExtremesProps) {
  const heard = gpus.filter((gpu) => !isSilent(gpu, newestMs));
  return (
    <>
      <Ranking title="Hottest GPUs" gpus={hottest(heard, ROWS)} />
      <Ranking title="Idlest GPUs" gpus={idlest(heard, ROWS)} />
    </>
  );
}

function Ranking({ title, gpus }: { title: string; gpus: readonly GpuNow[] }) {
  return (
    <Card title={title}>
      <table className="list">
        <thead>
          <tr>
            <th scope="col">GPU</th>
            <th scope="col" className="number">
              Temp
            </th>
            <th scope="col" className="number">
              Util
            </th>
            <th scope="col" className="number">
              Power
            </th>
          </tr>
        </thead>
        <tbody>
          {gpus.map((gpu) => (
            <tr key={gpu.uuid}>
              <th scope="row">
                <GpuLink uuid={gpu.uuid}>
                  {gpu.hostname} / {gpu.gpuId || gpu.uuid}
                </GpuLink>
              </th>
              <td className="number">{celsius(gpu.temperature)}</td>
              <td className="number">{percent(gpu.utilisation)}</td>
              <td className="number">{watts(gpu.power)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Card>
  );
}
