"""The rules of replicating a partition, as state machines without I/O and without a clock of their own.

`leader` knows how far each follower is, who is in sync and up to where the log is committed; `divergence` finds where
two logs part. May come in: leader epochs. Must not: disks, sockets, the time other than as an argument.
"""
