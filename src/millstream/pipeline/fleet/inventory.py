"""The machines of a fleet."""

import uuid
from dataclasses import dataclass

from millstream.pipeline.fleet.dice import unique_bytes

GPUS_PER_HOST = 8
MODEL_NAME = "NVIDIA H100 80GB HBM3"
MEMORY_MIB = 81_007
POWER_LIMIT_W = 700.0
DRIVER_VERSION = "535.129.03"


@dataclass(frozen=True, slots=True)
class Gpu:
    """`index` is its number in its host, `place` its number in the fleet."""

    uuid: str
    index: int
    place: int
    hostname: str


def gpus_of_fleet(hosts: int, seed: int) -> list[Gpu]:
    """All GPUs, host by host. The first hosts of a larger fleet are those of a smaller one."""
    return [
        Gpu(
            uuid=f"GPU-{uuid.UUID(bytes=unique_bytes(seed, 'gpu', host, index), version=4)}",
            index=index,
            place=host * GPUS_PER_HOST + index,
            hostname=f"gpu-host-{host + 1:04d}",
        )
        for host in range(hosts)
        for index in range(GPUS_PER_HOST)
    ]
