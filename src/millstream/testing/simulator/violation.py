"""A rule was broken."""


class Violation(AssertionError):
    """The message says which rule, by whom, and how it was seen."""
