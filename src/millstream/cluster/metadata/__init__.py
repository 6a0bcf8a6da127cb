"""Topics, partitions, brokers, configurations and producer ids as one replayable state machine.

A command (in the file of its subject: `topics`, `partitions`, `configs`, `brokers`, `producer_ids`) is
decided on the newest image, which gives `records`; the quorum (`cluster.raft`) makes them durable; `machine` applies
them to the `image`; `service` is the one door that does all three in order. Decisions are pure: no files, no clock, no
randomness of their own. Must not come in: request and reply classes of the wire protocol.
"""
