"""Coordinators on the node's own logs: the state machines of `coordinator/`, each over an internal topic.

`host` runs any kind of them, `hosted` is one kind, `coordinator_log` a partition as a machine sees it. `groups` are
consumer groups, with their bounds, patterns, topics and samples in files of their own.
"""
