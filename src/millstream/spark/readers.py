"""`spark.read`, whose ranges are fixed when the query is planned, and `spark.readStream`: offsets before each
micro-batch, in one process that lives as long as the query."""

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from millstream.client.wire.cluster import Cluster
from millstream.client.wire.requests import EARLIEST
from millstream.spark.errors import DataLoss
from millstream.spark.group_commits import GroupCommits
from millstream.spark.offsets import Offsets, find_partitions, from_json, require_partitions, resolve, to_json
from millstream.spark.options import ReadOptions
from millstream.spark.positions import Latest
from millstream.spark.ranges import OffsetRange, cut, limited
from millstream.spark.tasks import RangePartition, read_range
from millstream.spark.typed.layout import Layout

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, layout: Layout | None = None) -> None:
        self._options = options
        self._layout = layout

    def partitions(self) -> list[InputPartition]:
        options = self._options
        cluster = Cluster(options.cluster)
        try:
            places = require_partitions(cluster, options.subscription)
            start = resolve(cluster, options.start, places, "startingOffsets")
            end = resolve(cluster, options.end, places, "endingOffsets")
        finally:
            cluster.close()
        ranges = [OffsetRange(*place, start[place], end[place]) for place in sorted(places)]
        parts = cut(ranges, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(each) for each in parts]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_range(self._options, partition, self._layout)


log = logging.getLogger("millstream.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, layout: Layout | None = None) -> None:
        self._options = options
        self._layout = layout
        self._cluster: Cluster | None = None
        self._commits: GroupCommits | None = None
        self._latest: Offsets = {}
        self._target: Offsets | None = None
        self._waited_for: set[str] = set()
        self._topic_ids: dict[str, bytes] = {}
        self._made_again: set[str] = set()
        self._last_batch_at: float | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        places = self._find()
        return to_json(resolve(self._open(), self._options.start, places, "startingOffsets"))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._newest()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = from_json(start)
        self._commit(begin)
        latest = dict(self._target) if self._target is not None else self._newest()
        again = self._begin_again(begin, latest)
        if again is not None:
            return to_json(again)
        self._report_gone(begin, latest)
        self._latest = latest
        if isinstance(limit, ReadAllAvailable):
            return to_json(latest)
        begin |= self._begin_of_new(begin, latest)
        if self._too_little(begin, latest):
            return start
        self._last_batch_at = time.monotonic()
        maximum = self._options.max_offsets_per_trigger
        return to_json(latest if maximum is None else limited(maximum, begin, latest))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return to_json(self._latest) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, until = from_json(start), from_json(end)
        begin |= self._begin_of_new(begin, until)
        ranges = [OffsetRange(*place, begin[place], until[place]) for place in sorted(until)]
        parts = cut(ranges, self._options.min_partitions, self._options.max_records_per_partition)
        return [RangePartition(each) for each in parts]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_range(self._options, partition, self._layout)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
        if self._commits is not None:
            self._commits.close()

    def __getstate__(self) -> dict[str, Any]:
        """Pickled without connections; tasks have their own."""
        return {**self.__dict__, "_cluster": None, "_commits": None}

    def _open(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options.cluster)
        return self._cluster

    def _commit(self, finished: Offsets) -> None:
        """Commit to the group. Spark plans a batch only after the previous one is in its checkpoint, so all earlier
        offsets are finished; Spark's own `commit` comes too late for the last batch of a run.
        """
        if self._options.group is None:
            return
        if self._commits is None:
            self._commits = GroupCommits(self._options.group)
        self._commits.commit(finished)

    def _find(self) -> set[tuple[str, int]]:
        """The existing partitions. Missing topics are only logged: a stream may start before its topics exist."""
        places, missing, ids = find_partitions(self._open(), self._options.subscription)
        self._made_again |= {name for name in ids if self._topic_ids.get(name, ids[name]) != ids[name]}
        self._topic_ids |= ids
        for name in sorted(missing - self._waited_for):
            log.warning(
                "%s does not exist on %s yet; it is read once it does", name, self._options.cluster.addresses
            )
        self._waited_for = missing
        return places

    def _newest(self) -> Offsets:
        return resolve(self._open(), Latest(), self._find(), "endingOffsets")

    def _begin_of_new(self, begin: Offsets, until: Offsets) -> Offsets:
        """The start offsets of new partitions: their beginning."""
        new = sorted(set(until) - set(begin))
        if not new:
            return {}
        earliest = self._open().offsets(dict.fromkeys(new, EARLIEST))
        for (topic, partition), offset in earliest.items():
            if offset > 0:
                self._lost(
                    f"the new partition {topic}-{partition} starts at offset {offset} instead of 0: "
                    "records were deleted before they were read"
                )
        return earliest

    def _begin_again(self, begin: Offsets, latest: Offsets) -> Offsets | None:
        """An end that goes back to the beginning of topics that were recreated while the query ran, if any. The
        micro-batch up to it reads nothing of these topics, but records the step back in Spark's log of offsets, as
        Spark's own source would."""
        again = {topic for topic, _ in begin} & self._made_again
        if again:
            self._lost(f"{', '.join(sorted(again))} was deleted and made again while it was read")
        places = sorted(place for place in set(begin) & set(latest) if place[0] in again)
        found = self._open().offsets(dict.fromkeys(places, EARLIEST))
        self._made_again.clear()
        others = {place: offset for place, offset in begin.items() if place[0] not in again}
        return {**others, **found} if {**others, **found} != begin else None

    def _report_gone(self, begin: Offsets, latest: Offsets) -> None:
        gone = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(set(begin) - set(latest)))
        if gone:
            self._lost(f"{gone} was read before and does not exist any more")
        for place, end in latest.items():
            if end < begin.get(place, 0):
                self._lost(
                    f"{place[0]}-{place[1]} ends at offset {end}, but was read up to {begin[place]} already: "
                    "was the topic made again?"
                )

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{what}. Set failOnDataLoss to false to go on, or start with a new checkpoint")
        log.warning("%s; going on as failOnDataLoss is false", what)

    def _too_little(self, begin: Offsets, latest: Offsets) -> bool:
        """Whether to wait for minOffsetsPerTrigger: at most for maxTriggerDelay, and never in an AvailableNow run."""
        minimum = self._options.min_offsets_per_trigger
        if minimum is None or self._target is not None:
            return False
        if self._last_batch_at is None:
            # As in Spark's source, a query's first micro-batch takes all available records.
            return False
        if time.monotonic() - self._last_batch_at >= self._options.max_trigger_delay_s:
            return False
        return sum(max(end - begin[place], 0) for place, end in latest.items()) < minimum
