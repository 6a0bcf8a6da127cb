from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster.raft.membership import (
    Change,
    ChangeImpossible,
    ChangeKind,
    MemberKey,
    Membership,
    changed,
    decode_membership,
    encode_membership,
    majority,
)

KEYS = [MemberKey(number, UUID(int=number)) for number in range(1, 7)]
changes = st.builds(Change, st.sampled_from(ChangeKind), st.sampled_from(KEYS))


@given(st.lists(changes, max_size=12))
def test_majorities_before_and_after_a_change_always_meet(steps: list[Change]) -> None:
    membership = Membership(tuple(KEYS[:3]))
    for change in steps:
        try:
            after = changed(membership, change)
        except ChangeImpossible:
            continue
        both = len(set(membership.voters) | set(after.voters))
        assert majority(len(membership.voters)) + majority(len(after.voters)) > both
        assert after.voters
        assert not set(after.voters) & set(after.learners)
        membership = after


@given(st.permutations(KEYS), st.integers(1, 6))
def test_a_membership_survives_its_bytes(keys: list[MemberKey], voters: int) -> None:
    membership = Membership(tuple(sorted(keys[:voters])), tuple(sorted(keys[voters:])))
    assert decode_membership(encode_membership(membership)) == membership


def test_a_node_with_a_new_directory_does_not_take_the_place_of_its_former_self() -> None:
    returned = MemberKey(1, UUID(int=77))
    with pytest.raises(ChangeImpossible, match="another data directory"):
        changed(Membership(tuple(KEYS[:3])), Change(ChangeKind.ADD_LEARNER, returned))
