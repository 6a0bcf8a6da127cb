"""What is really in a partition's files, read without the node."""

from pathlib import Path

from millstream.runtime.disk import SystemDisk
from millstream.storage.dump import BatchRow, dump_file


def stored_batches(directory: Path) -> list[BatchRow]:
    """All batches of a partition, oldest first; the files must be sound."""
    rows: list[BatchRow] = []
    for file in sorted(directory.glob("*.log")):
        for row in dump_file(SystemDisk(), str(file)):
            assert isinstance(row, BatchRow), f"{file}: {row}"
            rows.append(row)
    return rows


def stored_codecs(directory: Path) -> set[str]:
    return {batch.codec for batch in stored_batches(directory)}
