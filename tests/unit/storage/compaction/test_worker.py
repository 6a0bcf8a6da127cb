import os
import subprocess
from pathlib import Path

from millstream.runtime.disk import SystemDisk
from millstream.storage.compaction.job import (
    CleaningJob,
    CleaningOutcome,
    decode_outcome,
    encode_job,
    worker_command,
)
from millstream.storage.compaction.worker import work
from support.partition_files import DISK, PartitionFiles, batch_of, keyed


def run_process(job: CleaningJob) -> CleaningOutcome:
    done = subprocess.run(
        worker_command(os.getpid()), input=encode_job(job), capture_output=True, check=True, timeout=60
    )
    assert done.stderr == b""
    return decode_outcome(done.stdout)


def test_the_process_cleans_as_the_job_says(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path)
    files.add(batch_of(keyed(0, "a", "1"), keyed(1, "a", "2"), producer_id=3))
    job = files.job(last_batches={3: 1})
    outcome = run_process(job)
    assert outcome == work(DISK, job)
    assert outcome.result is not None
    assert outcome.result.stats.records_kept == 1
    assert sorted(tmp_path.glob("*.cleaned")) == [
        tmp_path / f"{0:020d}{kind}.cleaned" for kind in (".index", ".log", ".timeindex")
    ]


def test_corruption_is_an_outcome_with_file_and_position(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path)
    files.add(batch_of(keyed(0, "a", "1")))
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    outcome = run_process(files.job())
    assert outcome.result is None
    assert outcome.failure is not None
    assert (outcome.failure.path, outcome.failure.position) == (str(path), 0)
    assert "checksum" in outcome.failure.message


def test_a_segment_that_went_away_is_an_outcome(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path)
    files.add(batch_of(keyed(0, "a", "1")))
    (tmp_path / f"{0:020d}.log").unlink()
    outcome = work(DISK, files.job())
    assert outcome.failure is not None
    assert outcome.failure.path.endswith(".log")


def test_a_full_disk_is_an_outcome_and_leaves_nothing(tmp_path: Path) -> None:
    class FullDisk(SystemDisk):
        __slots__ = ()

        def write_atomically(self, path: str, data: object, *, durable: bool = True) -> None:
            raise OSError(28, "No space left on device", path)

    files = PartitionFiles(tmp_path)
    files.add(batch_of(keyed(0, "a", "1"), keyed(1, "a", "2")))
    before = files.contents()
    outcome = work(FullDisk(), files.job())
    assert outcome.failure is not None
    assert "No space left" in outcome.failure.message
    assert files.contents() == before
