"""What can go wrong with a store."""


class StoreError(Exception):
    """Any failure of a store; the message says what was wrong, where and what to do."""


class StoreUnavailable(StoreError):
    """The store did not take a write or answer a query within its bounded retries; the same call may succeed later."""


class InvalidCursor(StoreError, ValueError):
    """A cursor that this query cannot have handed out."""
