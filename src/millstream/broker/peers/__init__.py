"""Nodes among themselves: one connection to each other node, over a listener of their own.

`hello` is who a node says it is and whether another believes it, `link` finds that listener and is one connection and
its renewal, `network` all of them as the quorum's transport and the way to the controller, `founding`
how the first nodes of a cluster agree that they are one (`founder` carries it out). `apis` handles their requests,
`lease` is until when no other node can have taken over, and `contact` finds out when one may have. May come in:
cluster, the protocol's framing. Must not: handlers of clients' requests.
"""
