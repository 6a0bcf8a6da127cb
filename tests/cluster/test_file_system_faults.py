"""One node of three on a real file system that is full, or whose device fails."""

from pathlib import Path

import pytest

from support.acked_writes import AckedWriter, judge, read_numbers
from support.cluster import cluster_of
from support.failing_disk import failing_disk
from support.small_disk import small_disk
from support.taking_over import others_go_on

# Sessions longer than the default: the machine that runs the tests may be busy.
SETTINGS = {"cluster.session_timeout": "3s", "replication.placement": "balanced"}
PARTITIONS = 3


@pytest.mark.long
def test_a_file_system_without_room(tmp_path: Path) -> None:
    """A crash meanwhile is no worse than one at another time."""
    home = tmp_path / "node-1" / "data"
    home.mkdir(parents=True)
    with small_disk(home, 64) as disk, cluster_of(tmp_path, settings=SETTINGS) as cluster:
        cluster.start()
        cluster.create_topic("t", PARTITIONS, min_insync_replicas="2")
        with AckedWriter(cluster.bootstrap, "t", PARTITIONS) as writer:
            writer.wait_for(100)
            disk.fill()
            others_go_on(cluster, "t", writer, 1)
            cluster.nodes[1].kill()
            disk.make_room()
            cluster.nodes[1].start()
            cluster.wait_in_sync("t")
            writer.wait_for(50)
        judge(writer, read_numbers(cluster.bootstrap, "t", PARTITIONS))
        assert not writer.errors


@pytest.mark.long
def test_a_device_that_fails(tmp_path: Path) -> None:
    """An fsync that the kernel fails. The node ends, and starts when the device is well."""
    home, backing = tmp_path / "node-1" / "data", tmp_path / "backing"
    home.mkdir(parents=True)
    backing.mkdir()
    with failing_disk(home, backing) as disk, cluster_of(tmp_path, settings=SETTINGS) as cluster:
        cluster.start()
        cluster.create_topic("t", PARTITIONS, min_insync_replicas="2")
        with AckedWriter(cluster.bootstrap, "t", PARTITIONS, value_bytes=2000) as writer:
            writer.wait_for(100)
            disk.fail()
            assert cluster.nodes[1].wait_for_end() == 1
            others_go_on(cluster, "t", writer, 1)
            disk.repair()
            cluster.nodes[1].start()
            cluster.wait_in_sync("t")
            writer.wait_for(50)
        judge(writer, read_numbers(cluster.bootstrap, "t", PARTITIONS))
        assert not writer.errors
        cluster.close()
