"""Backups of a cluster in a folder: copying batches out of running nodes, and making a data directory from them.

Comes in: a cluster's address, a folder, a disk. Must not come in: the broker; what is copied is asked for over the
wire, and what is restored is written for a node that does not run.
"""
