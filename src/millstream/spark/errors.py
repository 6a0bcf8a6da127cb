"""Failures between a task and the cluster, in addition to those of every client."""

from millstream.client.errors import ClientError, ConfigurationError


class SourceError(ClientError):
    """A failure that a user of the data source sees; the message says what to do."""


class OptionError(SourceError, ConfigurationError):
    """An option that is missing, unknown or cannot be used."""


class DataLoss(SourceError):
    """Offsets that should be read no longer exist."""
