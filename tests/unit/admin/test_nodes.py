"""Which nodes may go."""

import pytest

from millstream.admin.cluster_view import BrokerState, BrokerView, ClusterView
from millstream.admin.nodes import check_removable
from millstream.client.errors import ClientError


def _view(live: tuple[int, ...], fenced: tuple[int, ...] = (), away: tuple[int, ...] = ()) -> ClusterView:
    states = dict.fromkeys(live, BrokerState.LIVE) | dict.fromkeys(fenced, BrokerState.FENCED)
    brokers = tuple(
        BrokerView(node, f"host{node}:9092", None, state, "voter" if node < 9 else "follower", 1, 0, 0)
        for node, state in states.items()
    )
    return ClusterView("cluster", live[0], brokers, (), 0, away)


@pytest.mark.parametrize(
    "view", [_view((1, 2), fenced=(3,)), _view((1, 2), away=(3,)), _view((1, 2), fenced=(3,), away=(4,))]
)
def test_a_live_voter_stays_while_the_others_are_no_majority_without_it(view: ClusterView) -> None:
    with pytest.raises(ClientError, match="no majority of the voters"):
        check_removable(view, 2)
    check_removable(view, 3)


@pytest.mark.parametrize(
    "view",
    [
        _view((1, 2)),
        _view((1, 2, 3)),
        _view((1, 2, 3, 4), fenced=(5,)),
        _view((1, 3, 9), away=(2,)),
        _view((1,), fenced=(2, 3)),
    ],
)
def test_all_others_may_go(view: ClusterView) -> None:
    check_removable(view, 2)
    if view.broker(9) is not None:
        check_removable(view, 9)
