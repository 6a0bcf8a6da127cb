"""How far the job is in the log, at any moment: from Spark's log of offsets and from the cluster.

Spark itself reports lag only when a micro-batch has ended.
"""

import json
import threading
from collections.abc import Mapping
from pathlib import Path

from millstream.client.errors import ClientError
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.requests import EARLIEST, LATEST
from millstream.config.pipeline_settings import PipelineSettings
from millstream.spark.offsets import Offsets, find_partitions, from_json
from millstream.spark.options import Topics, read_options


class LogPosition:
    """Safe to use from several threads."""

    def __init__(self, settings: PipelineSettings, checkpoint: Path) -> None:
        options = read_options(
            {
                "kafka.bootstrap.servers": settings.bootstrap,
                "subscribe": settings.topic,
                "kafka.default.api.timeout.ms": "2000",
            },
            streaming=True,
        )
        self._cluster = Cluster(options.cluster)
        self._subscription = Topics((settings.topic,))
        self._lock = threading.Lock()
        self._offsets = checkpoint / "offsets"

    def end_of(self, batch_id: int) -> Offsets | None:
        """Where a batch ends; None when it was not planned, or is forgotten."""
        try:
            lines = (self._offsets / str(batch_id)).read_text().splitlines()
            return from_json(json.loads(lines[-1]))
        except (OSError, ValueError, IndexError):
            return None

    def lag(self, done: int) -> Mapping[tuple[str, int], int] | None:
        """Records in the log behind those of the batch that was done last; None when the cluster does not say."""
        read = self.end_of(done) or {}
        latest = self._ask(LATEST)
        if latest is None:
            return None
        if not read and done < 0:
            read = self._ask(EARLIEST) or {}
        return {place: max(0, end - read.get(place, 0)) for place, end in latest.items()}

    def size_of(self, batch_id: int) -> int | None:
        """Offsets that a batch spans."""
        start, end = self.end_of(batch_id - 1), self.end_of(batch_id)
        if start is None or end is None:
            return None
        return sum(max(0, offset - start.get(place, 0)) for place, offset in end.items())

    def lost_before(self, batch_id: int) -> int:
        """Offsets of a planned batch that the topic no longer holds."""
        start, end = self.end_of(batch_id - 1), self.end_of(batch_id)
        earliest = self._ask(EARLIEST) if start is not None and end is not None else None
        if start is None or end is None or earliest is None:
            return 0
        return sum(
            max(0, min(earliest[place], end[place]) - offset)
            for place, offset in start.items()
            if place in earliest and place in end
        )

    def close(self) -> None:
        with self._lock:
            self._cluster.close()

    def _ask(self, which: int) -> Offsets | None:
        with self._lock:
            try:
                places, _ = find_partitions(self._cluster, self._subscription)
                return self._cluster.offsets(dict.fromkeys(sorted(places), which))
            except (OSError, ClientError):
                return None
