"""Coordinators on the node's own logs: the state machines of `coordinator/`, each over an internal topic.

`host` runs all kinds of them, `hosted` is one kind, `coordinator_log` a partition as a machine sees it. `groups` has
consumer groups, `group_bounds` their limits; `mqtt_sessions` and `share_state` have the other kinds.
"""
