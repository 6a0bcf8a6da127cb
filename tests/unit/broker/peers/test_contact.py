"""A node that hears nobody may have been succeeded, unless it knows that nobody can have done it."""

from millstream.broker.peers.contact import Contact, no_election_possible_at

SESSION = 0.5
VOTERS = (1, 2, 3)


def contact(now: float = 0.0) -> Contact:
    return Contact(1, SESSION, now)


def pass_time(
    watched: Contact,
    seconds: float,
    *,
    hearing: tuple[int, ...] = (),
    leader: int | None = None,
    ended: tuple[int, ...] = (),
    voters: tuple[int, ...] = VOTERS,
    since: float = 0.0,
) -> bool:
    """Whether contact is lost after that time, in which `hearing` were heard."""
    steps = int(seconds / 0.05)
    is_lost = False
    for step in range(1, steps + 1):
        now = since + step * 0.05
        for node_id in hearing:
            watched.heard(node_id, now)
        is_lost = watched.is_lost(voters, leader, ended, now)
    return is_lost


def test_contact_is_lost_when_nobody_is_heard_for_a_session() -> None:
    watched = contact()
    assert not pass_time(watched, 0.45)
    assert pass_time(watched, 0.2, since=0.45)


def test_a_controller_is_enough_also_for_a_node_without_a_vote() -> None:
    assert not pass_time(contact(), 5.0, hearing=(2,), leader=2)
    assert not pass_time(contact(), 5.0, hearing=(3,), leader=3, voters=(2, 3, 4))


def test_a_majority_without_a_controller_is_enough() -> None:
    assert not pass_time(contact(), 5.0, hearing=(2,))


def test_a_controller_is_only_as_good_as_the_majority_it_hears() -> None:
    assert not pass_time(contact(), 5.0, hearing=(2,), leader=1)
    assert pass_time(contact(), 5.0, leader=1)
    assert pass_time(contact(), 5.0, hearing=(2,), voters=(1, 2, 3, 4, 5))
    assert not pass_time(contact(), 5.0, hearing=(2, 3), voters=(1, 2, 3, 4, 5))


def test_a_controller_that_fell_silent_does_not_count() -> None:
    assert pass_time(contact(), 5.0, leader=2)


def test_nobody_goes_on_where_too_many_have_ended() -> None:
    assert not pass_time(contact(), 5.0, ended=(2,)), "the third is no majority"
    assert not pass_time(contact(), 5.0, ended=(2, 3))
    assert pass_time(contact(), 5.0, ended=(2,), voters=(1, 2, 3, 4, 5))


def test_it_is_found_again() -> None:
    watched = contact()
    assert pass_time(watched, 5.0)
    assert not pass_time(watched, 0.05, hearing=(3,), since=5.0)


def test_a_pause_of_its_own_is_no_silence_of_others() -> None:
    watched = contact()
    assert not pass_time(watched, 1.0, hearing=(2, 3))
    assert not watched.is_lost(VOTERS, None, (), 61.0), "nothing that came meanwhile has been looked at yet"
    assert pass_time(watched, 0.6, since=61.0)


def test_a_quorum_of_one_hears_itself() -> None:
    assert not pass_time(contact(), 5.0, voters=(1,))


def test_no_controller_can_be_elected_while_the_rest_is_no_majority() -> None:
    assert no_election_possible_at(VOTERS, {2: 7.0, 3: 5.0}) == 5.0
    assert no_election_possible_at(VOTERS, {2: 7.0}) is None, "the third may be, with this node's own vote"
    assert no_election_possible_at((1, 2, 3, 4, 5), {2: 9.0, 3: 1.0, 4: 5.0, 5: 6.0}) == 5.0
    assert no_election_possible_at((1, 2), {2: 3.0}) == 3.0
    assert no_election_possible_at(VOTERS, {4: 1.0, 5: 1.0}) is None
