"""Nodes among themselves: one connection to each other node, over the listener that clients use too.

`hello` is who a node says it is and whether another believes it, `link` one connection and its renewal, `network` all
of them as the quorum's transport and the way to the controller, `founding` how the first nodes of a cluster agree that
they are one (`founder` carries it out, `promise` is what each has on disk), `waiting` what a node says meanwhile.
`apis` are the handlers of what they say, `isolation` is what follows when they may have gone on without this one.
May come in: cluster, the protocol's framing. Must not: handlers of clients' requests.
"""
