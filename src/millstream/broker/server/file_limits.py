"""How many files the system lets a process open, shared out between connections and logs."""

import resource
from typing import NamedTuple

from millstream.config.settings import PerformanceSettings
from millstream.observability.logs import get_logger

log = get_logger("millstream.node")

_UNLIMITED = 1 << 20
# For everything else: the listener, the quorum's log, threads' wake-up pipes, modules that are imported late.
_RESERVED = 512
_FEWEST_LOG_FILES = 64
_FEWEST_CONNECTIONS = 16


class FileLimits(NamedTuple):
    connections: int
    log_files: int
    most_connections: int
    """Those that there is room for, whether they are wanted or not."""


def raise_and_share(settings: PerformanceSettings) -> FileLimits:
    """Raise the process's limit as far as allowed and share it out."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return share(_UNLIMITED if hard == resource.RLIM_INFINITY else hard, settings)


def warn_of_few_connections(allowed: int, wanted: int) -> None:
    if allowed < wanted:
        log.warning(
            "fewer connections than max.connections: raise the limit of open files",
            allowed=allowed,
            wanted=wanted,
        )


def share(limit: int, settings: PerformanceSettings) -> FileLimits:
    """Connections come first; what they do not need is for log files, which can be closed and opened again."""
    limit -= min(_RESERVED, limit // 4)
    log_files = settings.max_open_files
    if log_files is None:
        log_files = max(_FEWEST_LOG_FILES, min(limit // 2, limit - settings.max_connections))
    room = max(_FEWEST_CONNECTIONS, limit - log_files)
    return FileLimits(min(settings.max_connections, room), log_files, room)
