"""Why nodes do not come together."""


class CannotJoin(Exception):
    """The other nodes do not take this one in, or contradict each other; the message says what to do."""


class CannotFound(Exception):
    """A cluster is not founded as an operator wants it; the message says why."""
