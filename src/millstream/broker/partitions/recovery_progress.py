"""What recovery finds in the logs of a node that starts, told as it goes on."""

from millstream.observability.broker_metrics import BrokerMetrics
from millstream.observability.logs import get_logger
from millstream.runtime.clock import Clock
from millstream.storage.segment_recovery import RecoveryReport

log = get_logger("millstream.node")


class RecoveryProgress:
    """Says what recovery found, and on long ones how far it is."""

    def __init__(self, total: int, clock: Clock, metrics: BrokerMetrics) -> None:
        self._total = total
        self._clock = clock
        self._metrics = metrics
        self._done = 0
        self._told = clock.monotonic()
        self.scanned_bytes = 0
        self.cut_bytes = 0
        self.damaged: dict[str, list[int]] = {}

    def report(self, report: RecoveryReport) -> None:
        self._done += 1
        self.scanned_bytes += report.scanned_bytes
        self.cut_bytes += report.cut_bytes
        if report.cut_bytes:
            self._metrics.recovery_cuts.value += 1
            tell = log.error if report.has_cut_batches else log.warning
            what = (
                "damaged end cut, with sound records behind it" if report.has_cut_batches else "torn tail cut"
            )
            tell(what, directory=report.directory, bytes=report.cut_bytes)
        for name in report.remade:
            log.warning("damaged file made again from the log", directory=report.directory, file=name)
        if report.damaged_segments:
            self.damaged[report.directory] = sorted(report.damaged_segments)
        for damage in report.damages:
            self._metrics.corrupt_batches.value += 1
            log.error("damage found", directory=report.directory, damage=damage)
        if self._clock.monotonic() - self._told > 2:
            self._told = self._clock.monotonic()
            log.info("recovering", partitions=self._done, of=self._total, scanned_bytes=self.scanned_bytes)
