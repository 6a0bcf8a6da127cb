"""The cleaning process: a job as JSON on stdin, its outcome as JSON on stdout.

    python -m millstream.storage.compaction.worker <process id of the broker>

It runs at low priority and ends with the broker that started it, so that no two processes write the same
files.
"""

import sys

from millstream.runtime.disk import Disk, SystemDisk
from millstream.runtime.process import die_with_parent, lower_priority
from millstream.storage.compaction.clean import run_job
from millstream.storage.compaction.job import (
    CleaningFailure,
    CleaningJob,
    CleaningOutcome,
    decode_job,
    encode_outcome,
)
from millstream.storage.compaction.source import UncleanableSegment


def work(disk: Disk, job: CleaningJob) -> CleaningOutcome:
    """Run the job; errors of files are an outcome, anything else is a bug and may end the process."""
    try:
        return CleaningOutcome(result=run_job(disk, job))
    except UncleanableSegment as error:
        return CleaningOutcome(failure=CleaningFailure(error.path, error.position, error.message))
    except OSError as error:
        path = error.filename if isinstance(error.filename, str) else job.directory
        return CleaningOutcome(failure=CleaningFailure(path, -1, str(error)))


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    lower_priority()
    job = decode_job(sys.stdin.buffer.read())
    sys.stdout.buffer.write(encode_outcome(work(SystemDisk(), job)))


if __name__ == "__main__":
    main()
