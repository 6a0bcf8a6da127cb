from millstream.gateway.breaker import Breaker, BreakerState

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


def breaker() -> tuple[Breaker, list[BreakerState]]:
    seen: list[BreakerState] = []
    return Breaker(3, 5.0, lambda _old, new: seen.append(new)), seen


def opened() -> tuple[Breaker, list[BreakerState]]:
    made, seen = breaker()
    for _ in range(3):
        made.failed(100.0)
    return made, seen


def test_single_failures_between_successes_change_nothing() -> None:
    made, seen = breaker()
    for _ in range(10):
        made.failed(1.0)
        made.failed(1.0)
        made.succeeded()
    assert (made.state, seen) == (CLOSED, [])


def test_failures_in_a_row_open_it_for_a_while() -> None:
    made, seen = opened()
    assert (made.state, seen, made.allows(104.9)) == (OPEN, [OPEN], False)


def test_then_one_request_tries_and_its_success_closes_it() -> None:
    made, seen = opened()
    assert [made.allows(105.0), made.allows(105.0)] == [True, False]
    made.succeeded()
    assert (seen, made.allows(105.0), made.allows(105.0)) == ([OPEN, HALF_OPEN, CLOSED], True, True)


def test_its_failure_opens_it_again_for_as_long() -> None:
    made, seen = opened()
    assert made.allows(105.0)
    made.failed(105.0)
    assert seen == [OPEN, HALF_OPEN, OPEN]
    assert [made.allows(109.9), made.allows(110.0)] == [False, True]


def test_a_try_that_was_abandoned_lets_another_try() -> None:
    made, _ = opened()
    assert made.allows(105.0)
    made.abandoned()
    assert made.allows(105.0)
