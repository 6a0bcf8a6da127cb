from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.broker.server.memory import MemoryBudget, MemoryWaiter

LIMIT = 100


def noted(names: list[str], name: str) -> Callable[[], None]:
    return lambda: names.append(name)


def test_memory_is_taken_up_to_the_limit() -> None:
    budget = MemoryBudget(LIMIT)
    assert budget.try_take(60)
    assert not budget.try_take(41)
    assert budget.try_take(40)
    assert budget.free_bytes == 0


def test_what_is_larger_than_everything_is_let_in_alone() -> None:
    budget = MemoryBudget(LIMIT)
    assert budget.try_take(500)
    assert not budget.try_take(1)
    budget.give_back(500)
    assert budget.try_take(1)
    assert not budget.try_take(500)


def test_those_who_wait_are_served_in_their_order_and_nobody_before_them() -> None:
    budget = MemoryBudget(LIMIT)
    served: list[str] = []
    budget.take(100)
    budget.when_free(80, noted(served, "large"))
    budget.when_free(10, noted(served, "small"))
    assert not budget.try_take(1)
    budget.give_back(50)
    assert served == [], "the small one does not overtake the large one, which would wait for ever"
    budget.give_back(30)
    assert (served, budget.used_bytes) == (["large"], 100)
    budget.give_back(10)
    assert (served, budget.used_bytes) == (["large", "small"], 100)


def test_who_gives_up_does_not_hold_up_the_others() -> None:
    budget = MemoryBudget(LIMIT)
    served: list[str] = []
    budget.take(60)
    large = budget.when_free(90, noted(served, "large"))
    budget.when_free(10, noted(served, "small"))
    budget.cancel(large)
    assert (served, budget.used_bytes) == (["small"], 70)
    assert budget.try_take(30)


def test_who_wants_only_to_know_is_told_when_anything_is_free() -> None:
    budget = MemoryBudget(LIMIT)
    served: list[str] = []
    budget.take(150)
    budget.when_free(0, noted(served, "first"))
    budget.give_back(50)
    assert served == []
    budget.give_back(1)
    assert (served, budget.used_bytes) == (["first"], 99)


def test_a_line_of_giants_moves_one_by_one() -> None:
    budget = MemoryBudget(LIMIT)
    served: list[str] = []
    budget.take(1)
    for name in "abc":
        budget.when_free(500, noted(served, name))
    for count in (1, 2, 3):
        budget.give_back(1 if count == 1 else 500)
        assert len(served) == count
    budget.give_back(500)
    assert budget.used_bytes == 0


class BudgetMachine(RuleBasedStateMachine):
    """Whatever is taken, awaited, cancelled and given back: the count is right and nobody waits without a reason."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = MemoryBudget(LIMIT)
        self.held: list[int] = []
        self.waiting: list[tuple[MemoryWaiter, int]] = []

    @rule(size=st.integers(0, 150))
    def take(self, size: int) -> None:
        if self.budget.try_take(size):
            self.held.append(size)

    @rule(size=st.integers(0, 150))
    def wait(self, size: int) -> None:
        if self.budget.try_take(size):
            self.held.append(size)
            return
        waiter = self.budget.when_free(size, lambda: self.granted(waiter))
        self.waiting.append((waiter, size))

    def granted(self, waiter: MemoryWaiter) -> None:
        first, size = self.waiting.pop(0)
        assert first is waiter
        self.held.append(size)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        self.budget.give_back(self.held.pop(index))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.waiting) - 1))
        waiter, _ = self.waiting.pop(index)
        self.budget.cancel(waiter)

    @invariant()
    def the_count_is_right(self) -> None:
        assert self.budget.used_bytes == sum(self.held)

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        if self.waiting:
            size = max(self.waiting[0][1], 1)
            assert self.budget.used_bytes > 0
            assert self.budget.used_bytes + size > LIMIT


TestBudgetMachine = BudgetMachine.TestCase
TestBudgetMachine.settings = settings(max_examples=60, stateful_step_count=40)
