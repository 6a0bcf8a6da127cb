"""Cursors: the key of a page's last row, checked before it is used."""

from millstream.pipeline.stores.base import Cursor, InvalidCursor


def check_cursor(cursor: Cursor | None, *kinds: type) -> Cursor | None:
    """The cursor, if it has values of these kinds; it may come from anybody."""
    if cursor is None:
        return None
    if len(cursor) != len(kinds) or any(
        not isinstance(value, kind) or isinstance(value, bool)
        for value, kind in zip(cursor, kinds, strict=True)
    ):
        raise InvalidCursor("the cursor does not belong to this query; start again without one")
    if any(isinstance(value, int) and abs(value) >= 1 << 62 for value in cursor):
        raise InvalidCursor("the cursor has a time that cannot be; start again without one")
    return cursor
