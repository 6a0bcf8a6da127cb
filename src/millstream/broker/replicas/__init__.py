"""Partitions that several nodes keep: the shell around `cluster.replication`.

`replication` follows the metadata and makes this node lead or follow; `sessions` and `serving` answer followers'
fetches; `fetcher` is this node as a follower of another, over a `link` of its own, `following` is what it does to one
partition; `in_sync` takes changes of the in-sync sets to the controller.
"""
