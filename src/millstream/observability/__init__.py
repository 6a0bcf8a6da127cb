"""What a node reports about itself: log lines, metrics, and their text for HTTP; and tasks that restart after an error,
which they log.

Every room above runtime may count and log here, so nothing here imports them: the broker passes callables that describe
its state at each scrape. The hot path pays an integer addition for a metric and one comparison for a debug line;
structlog and prometheus-client are imported when first needed, so that a start does not wait for them.
"""
