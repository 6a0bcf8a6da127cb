"""One partition's log on disk: segments, indexes, recovery, retention, compaction.

Files go through `runtime.disk`, time comes in as arguments. No sockets, no event loop, no knowledge of requests:
what must not block the loop (fsync, deletion, cleaning) is handed out as work for the caller to run elsewhere.
"""
