"""/health tells a load balancer where not to send anybody."""

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
        for number in (2, 3):
            cluster.nodes[number].kill()
        code, reasons = eventually(lambda: health(cluster, 1), lambda seen: seen[0] != 200, "illness")
        assert code == 503
        assert any("controller" in reason for reason in reasons), reasons
        cluster.launch(2)
        cluster.nodes[2].wait_until_ready()
        eventually(lambda: health(cluster, 1), lambda seen: seen == (200, []), "health again")
