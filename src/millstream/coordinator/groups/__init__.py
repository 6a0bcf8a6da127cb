"""Consumer groups and their offsets: classic groups, KIP-848 groups, and the conversion between them.

`coordinator.GroupCoordinator` is the state machine; everything else here serves it. Requests and replies are
values of this package: the broker's handlers translate Kafka's messages, so nothing here knows API versions
or kio.
"""
