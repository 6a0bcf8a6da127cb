"""Votes come and go one at a time, asked for at any node, and refused with a reason."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from uuid import UUID

import pytest

from millstream.cluster.metadata.command_codec import decode_command, encode_command
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.quorum import AddVoter, RemoveVoter
from millstream.cluster.metadata.records import BrokerRegistered, Endpoint
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.raft.membership import Change, ChangeKind, MemberKey, Membership
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import SystemDisk

ONE, TWO, THREE = (MemberKey(number, UUID(int=number)) for number in (1, 2, 3))
MEMBERS = Membership((ONE, TWO), (THREE,))
VOTERS = Membership((ONE, TWO, THREE))


def image_of(*up: MemberKey, away: tuple[MemberKey, ...] = ()) -> MetadataImage:
    return MetadataImage().apply(
        BrokerRegistered(
            each.node_id,
            each.node_id,
            UUID(int=each.node_id),
            (),
            None,
            is_fenced=each in away,
            directory=each.directory_id,
        )
        for each in (*up, *away)
    )


ALL_UP = image_of(ONE, TWO, THREE)


def run(story: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.run(story())


def test_a_learner_gets_a_vote() -> None:
    assert AddVoter(3).change_of(MEMBERS, ALL_UP) == Change(ChangeKind.PROMOTE, THREE)
    assert AddVoter(3, THREE.directory_id).change_of(MEMBERS, ALL_UP) == Change(ChangeKind.PROMOTE, THREE)


def test_who_has_one_or_is_not_there_is_refused() -> None:
    with pytest.raises(KafkaError) as caught:
        AddVoter(1).change_of(MEMBERS, ALL_UP)
    assert caught.value.code is ErrorCode.DUPLICATE_VOTER
    for absent in (AddVoter(9), AddVoter(3, ONE.directory_id), RemoveVoter(9), RemoveVoter(1, UUID(int=7))):
        with pytest.raises(KafkaError) as caught:
            absent.change_of(MEMBERS, ALL_UP)
        assert caught.value.code is ErrorCode.VOTER_NOT_FOUND


def test_a_voter_and_a_learner_can_go() -> None:
    assert RemoveVoter(2).change_of(MEMBERS, ALL_UP) == Change(ChangeKind.REMOVE, TWO)
    assert RemoveVoter(3).change_of(MEMBERS, ALL_UP) == Change(ChangeKind.REMOVE, THREE)


@pytest.mark.parametrize(
    "image",
    [
        image_of(ONE, TWO, away=(THREE,)),
        image_of(ONE, TWO),
        image_of(ONE, TWO, MemberKey(3, UUID(int=99))),
    ],
    ids=["fenced", "not registered", "another disk"],
)
def test_a_vote_stays_without_which_no_majority_is_up(image: MetadataImage) -> None:
    for up in (1, 2):
        with pytest.raises(KafkaError, match=r"no majority of the voters is left.*: 3;") as caught:
            RemoveVoter(up).change_of(VOTERS, image)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert RemoveVoter(3, THREE.directory_id).change_of(VOTERS, image).member == THREE


def test_with_a_majority_up_any_vote_can_go() -> None:
    four = Membership((*VOTERS.voters, MemberKey(4, UUID(int=4))))
    for node in (1, 2, 3):
        assert RemoveVoter(node).change_of(VOTERS, ALL_UP).member.node_id == node
        RemoveVoter(node).change_of(four, image_of(*four.voters))
    RemoveVoter(4).change_of(four, ALL_UP)


def test_who_is_not_up_gets_no_vote() -> None:
    for image in (image_of(ONE, TWO), image_of(ONE, TWO, away=(THREE,))):
        with pytest.raises(KafkaError, match="node 3 is not up") as caught:
            AddVoter(3).change_of(MEMBERS, image)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_the_last_vote_stays(tmp_path: Path) -> None:
    async def story() -> None:
        endpoints = (Endpoint("PLAINTEXT", "localhost", 9092),)
        service = await MetadataService.open(SystemDisk(), str(tmp_path), node_id=1, endpoints=endpoints)
        try:
            with pytest.raises(KafkaError, match="last voter") as caught:
                await service.submit(RemoveVoter(1))
            assert caught.value.code is ErrorCode.INVALID_REQUEST
        finally:
            await service.close()

    run(story)


def test_they_are_sent_to_the_controller() -> None:
    for command in (AddVoter(3, UUID(int=3)), RemoveVoter(2)):
        assert decode_command(encode_command(command)) == command
