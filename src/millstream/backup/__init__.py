"""Backups of a cluster in a folder: copies batches from running nodes, and makes a data directory from them.

Comes in: a cluster's address, a folder, a disk. Must not come in: the broker; copies come over the wire, and a restore
writes for a node that does not run.
"""
