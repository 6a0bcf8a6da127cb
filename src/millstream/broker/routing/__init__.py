"""Any node for everything: requests that another node must answer are forwarded to it, and its answer passed on.

For Kafka's clients `relay` is one client's way to all nodes and decides by API who answers, `relays` all of them;
`lane` is a connection of that client to one node, `local_lane` the same to this one, `not_here` this one without its
groups; `produce`, `fetch` and `split` are what is forwarded in parts. For doors of this process `routes` finds the
node that a call is for, `here` and `calls` are the two ways there. May come in: the protocol, the metadata's image,
the dispatcher. Whoever leads a partition is asked, this node too.
"""
