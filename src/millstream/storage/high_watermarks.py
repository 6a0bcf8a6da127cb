"""The high watermarks of replicated partitions, written down from time to time, in a text format like Kafka's.

1
<number of entries>
<topic id> <partition> <high watermark>
...

An old one does no harm: a follower hears the newest from its leader, and a leader finds it with its followers.
"""

from collections.abc import Mapping

from millstream.runtime.disk import Disk

HIGH_WATERMARKS_FILE = "replication-offset-checkpoint"

Key = tuple[bytes, int]


def write_high_watermarks(disk: Disk, data_dir: str, reached: Mapping[Key, int]) -> None:
    lines = ["1", str(len(reached))]
    lines += [f"{topic_id.hex()} {index} {offset}" for (topic_id, index), offset in reached.items()]
    disk.write_atomically(f"{data_dir}/{HIGH_WATERMARKS_FILE}", ("\n".join(lines) + "\n").encode())


def read_high_watermarks(disk: Disk, data_dir: str) -> dict[Key, int]:
    """Empty when there are none, or none that can be read."""
    path = f"{data_dir}/{HIGH_WATERMARKS_FILE}"
    if not disk.exists(path):
        return {}
    try:
        version, count, *lines = disk.read(path).decode().split()
        entries = [tuple(lines[at : at + 3]) for at in range(0, len(lines), 3)]
        if version != "1" or int(count) != len(entries):
            return {}
        return {(bytes.fromhex(topic_id), int(index)): int(offset) for topic_id, index, offset in entries}
    except ValueError:
        return {}
