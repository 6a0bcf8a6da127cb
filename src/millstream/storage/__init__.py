"""One partition's log on disk: segments, indexes, recovery, retention, compaction.

Files go through `runtime.disk`, time comes in as arguments. No sockets, no event loop, no knowledge of requests:
blocking work (fsync, deletion, cleaning) is returned to the caller, who runs it in another thread or process.
"""
