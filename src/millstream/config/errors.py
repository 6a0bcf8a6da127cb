"""The error for unusable settings."""

from collections.abc import Iterable


class ConfigError(ValueError):
    """A setting that is unknown or has an unusable value.

    `name` is the setting as the user wrote it, `message` says what is wrong and what to write, `where` is the
    file and line, the environment variable or the flag it came from.
    """

    def __init__(self, name: str, message: str, where: str | None = None) -> None:
        super().__init__(name, message, where)
        self.name = name
        self.message = message
        self.where = where

    def __str__(self) -> str:
        parts = [part for part in (self.where, self.name, self.message) if part]
        return ": ".join(parts)

    def at(self, where: str, name: str | None = None) -> "ConfigError":
        """The same error with the place, and the spelling, that the user knows."""
        return ConfigError(name or self.name, self.message, where)


def nearest(name: str, valid: Iterable[str]) -> str:
    """`; did you mean ...?` when a valid name is close, else an empty string."""
    import difflib

    matches = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""
