"""What makes brokers one cluster: its metadata, and how every node comes to agree on it.

Lives here: the metadata state machine (`metadata/`), the consensus core that carries its records between nodes
(`raft/`), the rules of replication, and placements. May come in: storage, protocol, config and runtime. Must not:
sockets, request handlers, or anything that knows how a client asked for a change.
"""
