"""Is there one order of operations that explains every answer? The search of Wing and Gong, with Lowe's memory.

An operation takes effect at one moment between its call and its answer. One whose answer is unknown may take effect at
any moment after its call, or never.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)
Request = TypeVar("Request")
Answer = TypeVar("Answer")

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Call(Generic[Request, Answer]):
    """`answer` None: the outcome is unknown, and `end` is NEVER."""

    request: Request
    answer: Answer | None
    start: float
    end: float


def is_linearizable(
    calls: Sequence[Call[Request, Answer]],
    initial: State,
    step: Callable[[State, Request], tuple[State, Answer]],
) -> bool:
    """`step` returns the state after a request, and its answer; states are compared by value."""
    calls = sorted(calls, key=lambda call: call.start)
    certain = sum(1 << number for number, call in enumerate(calls) if call.answer is not None)
    tried: set[tuple[int, State]] = set()
    stack: list[tuple[int, State]] = [(0, initial)]
    while stack:
        done, state = stack.pop()
        if done & certain == certain:
            return True
        if (done, state) in tried:
            continue
        tried.add((done, state))
        open_calls = [number for number in range(len(calls)) if not done >> number & 1]
        # All later operations began after one of the remaining had ended.
        first_end = min(calls[number].end for number in open_calls)
        for number in open_calls:
            call = calls[number]
            if call.start > first_end:
                break
            after, answer = step(state, call.request)
            if call.answer is None or call.answer == answer:
                stack.append((done | 1 << number, after))
    return False
