"""/health tells a load balancer where not to send anybody."""

import os
import signal
from pathlib import Path

import httpx

from support.cluster import ClusterProcesses, cluster_of, eventually


def health(cluster: ClusterProcesses, number: int) -> tuple[int, list[str]]:
    answer = httpx.get(f"http://{cluster.nodes[number].http}/health", timeout=60)
    return answer.status_code, answer.json()["reasons"]


def test_a_node_that_no_controller_answers_is_unwell_until_one_does(tmp_path: Path) -> None:
    with cluster_of(tmp_path) as cluster:
        cluster.start()
        cluster.wait_for_brokers(1, 2, 3)
        eventually(lambda: health(cluster, 1), lambda seen: seen == (200, []), "health")
        # Frozen, not killed: a node that finds all others dead is the last one alive, and serves.
        frozen = [cluster.nodes[number].pid for number in (2, 3)]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            code, reasons = eventually(lambda: health(cluster, 1), lambda seen: seen[0] != 200, "illness")
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
        assert code == 503
        assert reasons
        eventually(lambda: health(cluster, 1), lambda seen: seen == (200, []), "health again")
