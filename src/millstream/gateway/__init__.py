"""The HTTP gateway: produce, consume and acknowledge over HTTP, through any node or through a process of its own.

It sees `Doors` and nothing of the node behind it. Without I/O: `bodies`, `events`, `places`, `breaker`, `ring`.
Above them: `brokers` (health, circuit breakers), `produce`, `hub` and `consume` (queues, shared by all streams of a
group), `acknowledgements`, `reading` (the log itself), `admin`. `gateway` puts the routes together.
"""
