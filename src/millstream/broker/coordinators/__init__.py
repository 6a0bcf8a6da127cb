"""Coordinators on the node's own logs: the state machines of `coordinator/`, each over an internal topic."""
