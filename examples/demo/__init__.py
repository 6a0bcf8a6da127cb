"""The telemetry pipeline end to end on this machine: node, streamer, Spark job, store, query API and web console.

Run by `make demo`. Ctrl-C ends it; DEMO_SECONDS=n ends it n seconds after everything runs, and fails unless points
arrived in the store. The data goes to a temporary directory, or to DEMO_DATA and stays there.
"""
