"""What `cluster status` says of replicas that are not in sync."""

import pytest

from millstream.admin.cluster_view import BrokerState, BrokerView, ClusterView, PartitionView
from millstream.cli.cluster import show_status


def view(*partitions: PartitionView) -> ClusterView:
    states = {1: BrokerState.LIVE, 2: BrokerState.LIVE, 3: BrokerState.FENCED}
    brokers = tuple(
        BrokerView(number, f"h:{number}", None, state, "voter", 1, 0, 0) for number, state in states.items()
    )
    return ClusterView("c", 1, brokers, partitions, 0)


def test_a_node_that_is_up_and_not_in_sync_is_named_with_where_to_look(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = view(
        PartitionView("t", 0, 1, (1, 2, 3), (1,)),
        PartitionView("t", 1, 1, (1, 2), (1, 2)),
        PartitionView("t", 2, -1, (2, 3), ()),
    )
    assert seen.catching_up == {2: ["t:0"]}, (
        "3 is away, and without a leader there is nothing to catch up with"
    )
    show_status(seen)
    said = capsys.readouterr()
    assert "node 2 is up and not in sync with 1: t:0" in said.out + said.err
    assert "`cannot follow`" in said.out + said.err
