"""The HTTP gateway: produce, consume and acknowledge over HTTP, in any node or in a process of its own.

It uses `Doors` and knows nothing of the node behind them. Without I/O: `bodies`, `events`, `places`, `breaker`, `ring`.
Above them: `brokers` (health, circuit breakers), `produce`, `hub` and `consume` (queues, shared by all streams of a
group), `acknowledgements`, `reading` (the log itself), `admin`. `gateway` assembles the routes.
"""
