"""Nodes among themselves: one connection to each other node, over the listener that clients use too.

`hello` is who a node says it is and whether another believes it, `link` one connection and its renewal, `network` all
of them as the quorum's transport and the way to the controller, `founding` how the first nodes of a cluster agree that
they are one (`founder` carries it out, `promise` is what each has on disk), `waiting` what a node says meanwhile.
May come in: cluster, the protocol's framing. Must not: partitions, handlers of clients' requests.
"""
