"""What can go wrong with a backup; the messages are for the person who asked for it."""


class BackupError(Exception):
    """The backup, or the restore, was not made."""


class NotABackup(BackupError):
    """The folder is not one that `backup create` made."""


class Damaged(BackupError):
    """A file of the backup is not what the manifest says."""


class NoRoom(BackupError):
    """The disk is full."""
