"""Why nodes do not come together."""


class CannotJoin(Exception):
    """The other nodes do not take this one in, or contradict each other; the message says what to do."""
