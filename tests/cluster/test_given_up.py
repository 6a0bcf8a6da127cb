"""A node is lost that alone had everything of a partition: status says so, and removing it gives the rest a leader."""

import json
import shutil
from pathlib import Path

from support.acked_writes import AckedWriter
from support.cli import Cli
from support.cluster import ClusterProcesses, cluster_of, eventually

LOST, BEHIND, OTHER = 1, 2, 3


def unled(cluster: ClusterProcesses) -> list[dict[str, object]]:
    shown = Cli(cluster.nodes[OTHER].listen).run("cluster", "status", "--json").stdout
    found: list[dict[str, object]] = json.loads(shown)["without_leader"]
    return found


def test_removing_the_last_complete_replica_leaves_no_partition_without_a_leader(tmp_path: Path) -> None:
    with cluster_of(tmp_path, settings={"cluster.session_timeout": "10s"}) as cluster:
        cluster.start()
        assignments = [{"partition_index": 0, "broker_ids": [LOST, BEHIND]}]
        topic = {"name": "t", "num_partitions": -1, "replication_factor": -1, "assignments": assignments}
        assert cluster.ask(1, "create_topics", 7, topics=[topic]).topics[0].error_code == 0
        cluster.wait_in_sync("t", 2)
        cluster.nodes[BEHIND].kill()
        eventually(lambda: cluster.in_sync_sets("t", OTHER), lambda seen: seen == [[LOST]], "one in sync")
        with AckedWriter(cluster.nodes[LOST].listen, "t", 1) as writer:
            writer.wait_for(20)
        cluster.nodes[LOST].kill()
        cluster.nodes[BEHIND].start()
        (told,) = eventually(
            lambda: unled(cluster), lambda seen: len(seen) == 1, "a word about the partition"
        )
        assert (told["topic"], told["partition"]) == ("t", 0)
        assert f"waits for node {LOST}, which has everything" in str(told["reason"])
        assert f"cluster remove {LOST} --force" in str(told["advice"])
        Cli(cluster.nodes[OTHER].listen).ok("cluster", "remove", str(LOST), "--force", "--yes")
        eventually(lambda: cluster.topics(OTHER)["t"], lambda seen: seen == [BEHIND], "another leader")
        assert unled(cluster) == []
        shutil.rmtree(cluster.nodes[LOST].data_dir)
        cluster.nodes[LOST].start()
        cluster.wait_in_sync("t", 2)
