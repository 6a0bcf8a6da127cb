"""What the operating system says about this machine and about a process and its children."""

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

from bench.model import Environment

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})


@dataclass(frozen=True, slots=True)
class Usage:
    cpu_seconds: float
    rss_bytes: int


def usage(pid: int) -> Usage:
    """User and system time, ended children included, and resident memory of a process tree."""
    # The command's name may contain spaces and parentheses; the numbers follow the last one.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, children_user, children_system = (int(value) for value in fields[11:15])
    cpu_seconds = (user + system + children_user + children_system) / _TICKS
    rss_bytes = int(fields[21]) * _PAGE_BYTES
    for child in _children(pid):
        below = usage(child)
        cpu_seconds += below.cpu_seconds
        rss_bytes += below.rss_bytes
    return Usage(cpu_seconds, rss_bytes)


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def file_system_type(path: Path) -> str:
    """The type of the file system that holds `path`: that of the longest mount point above it."""
    resolved = path.resolve()
    best, kind = -1, "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _device, mount, mount_kind, *_ = line.split()
        if resolved.is_relative_to(mount) and len(mount) >= best:
            best, kind = len(mount), mount_kind
    return kind


def is_real_disk(path: Path) -> bool:
    return file_system_type(path) not in _MEMORY_FILE_SYSTEMS


def describe(data_directory: Path, driver: str) -> Environment:
    return Environment(
        date=time.strftime("%Y-%m-%d %H:%M:%S"),
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES / 1e9, 1),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        file_system=file_system_type(data_directory),
        driver=driver,
        load_average=os.getloadavg()[0],
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
