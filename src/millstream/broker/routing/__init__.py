"""Any node for everything: requests that another node must answer are forwarded to it, and its answer passed on.

`relay` is one client's way to all nodes and decides by API who answers; `lane` is a connection of that client to one
node, `local_lane` the same to this one, `not_here` this one without its groups; `produce`, `fetch` and `split` are what
is forwarded in parts; `route` is the door for doors: requests of this process itself. `relays` is all of them. May come
in: the protocol, the metadata's image, the dispatcher. Must not: partitions and logs; whoever leads a partition is
asked, this node too.
"""
