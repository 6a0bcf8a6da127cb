"""The Spark job: telemetry from a topic into a store, checked, deduplicated, rolled up and watched.

    records -> judge -> points, dead letters -> ledger of what changed -> rollups -> health events

`dataflow` is all of it on one page; `judge` is SQL only; `text` is the Arrow function that reads what fits no type;
`ledger` remembers durably which windows changed; `recompute` brings rollups and `health` up to date; `run`, `backfill`
and the files around them are the commands. Comes in: settings, a Spark session, a store. Must not: Python code per
right record, and results that depend on batches, order or repetition; the store is a function of the set of valid
points. Importing these modules imports pyspark.
"""
