"""Assertions that stay on in production."""


class InvariantViolation(AssertionError):
    """The program's own rules are violated; continuing would risk data."""


def invariant(condition: bool, message: str) -> None:
    """Raise when `condition` is false; unlike `assert`, also under `python -O`."""
    if not condition:
        raise InvariantViolation(message)
