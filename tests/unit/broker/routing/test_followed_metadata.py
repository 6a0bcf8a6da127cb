"""The metadata of nodes, as a gateway follows it: one node after another, and never back in time."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from millstream.broker.routing.gateway_doors import FollowedMetadata
from millstream.broker.routing.metadata import MetadataFollowers
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import ClusterCreated, TopicCreated
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.testing.simulator.loop import SimulatedLoop

EMPTY = MetadataImage().apply([ClusterCreated("c")])
ONE = EMPTY.apply([TopicCreated("one", UUID(int=1))])
TWO = ONE.apply([TopicCreated("two", UUID(int=2))])


class Node:
    def __init__(self, image: MetadataImage, index: int) -> None:
        self.metadata: Any = SimpleNamespace(
            image=image, index=index, incarnation="7", watch=lambda _told: lambda: None
        )
        self._followers = MetadataFollowers(self.metadata)

    def answer(self, sent: str = "") -> bytes:
        return SimulatedLoop().run(self._followers.next(sent, 0.0))


def follow(followed: FollowedMetadata, node: Node, sent: str = "") -> str:
    return followed.heard(node.answer(sent), "node:9092")


def test_a_node_that_lags_is_not_followed_until_it_has_caught_up() -> None:
    """Topics that the gateway had made itself were gone for a while, and partitions had leaders of long ago."""
    followed, late = FollowedMetadata([]), Node(ONE, 10)
    follow(followed, Node(TWO, 12))
    with pytest.raises(KafkaError) as caught:
        follow(followed, late)
    assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE
    assert followed.image == TWO
    assert "10 of 12" in caught.value.message
    # The last entry changed nothing in it.
    late.metadata.image, late.metadata.index = TWO, 13
    follow(followed, late)
    assert followed.image == TWO


def test_an_image_that_stays_the_same_is_as_new_as_its_node() -> None:
    """Entries of the quorum that change no metadata, as a new leader's first one, make it newer all the same."""
    followed, first, second = FollowedMetadata([]), Node(TWO, 12), Node(TWO, 15)
    sent = follow(followed, first)
    follow(followed, second)
    first.metadata.index = 15
    sent = follow(followed, first, sent)
    assert sent.endswith("@15")
    assert followed.image == TWO


def test_what_has_changed_is_told_of_an_image_that_was_sent() -> None:
    followed, node = FollowedMetadata([]), Node(ONE, 10)
    sent = follow(followed, node)
    node.metadata.image, node.metadata.index = TWO, 11
    assert not follow(followed, node, sent).startswith("!")
    assert followed.image == TWO


def test_another_cluster_is_refused_and_it_is_said_why() -> None:
    followed = FollowedMetadata([])
    follow(followed, Node(TWO, 12))
    with pytest.raises(KafkaError) as caught:
        follow(followed, Node(MetadataImage().apply([ClusterCreated("another")]), 90))
    assert caught.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert "restart this gateway" in caught.value.message
    assert followed.image == TWO
