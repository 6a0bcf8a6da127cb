"""What a node tells about itself: log lines, metrics, health, and the HTTP door they are read through; tasks that go on
after an error, and tell of it.

Every room above runtime may count and log here, so nothing here imports them: the broker hands in callables
that describe its state when somebody asks. The hot path pays an integer addition for a metric and one
comparison for a debug line; structlog and prometheus-client are imported when first needed, so that
a start does not wait for them.
"""
