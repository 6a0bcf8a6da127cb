"""Replication between nodes: network and disk around the decisions of `cluster.replication`.

`replication` follows the metadata and makes this node lead or follow. `sessions` and `serving` answer followers'
fetches; `fetcher` fetches from one leader in a `conversation` over a `link` of its own, and `following` applies the
replies to the logs. `in_sync` takes changes of the in-sync sets to the controller, `repair` replaces damaged segments,
`making_way` gives up leadership because of damage, `recovered` reports logs after an unclean stop.
"""
