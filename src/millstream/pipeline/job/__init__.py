"""The Spark job: telemetry from a topic into a store, checked, deduplicated, rolled up and watched.

    records -> judge -> points, dead letters -> ledger of what changed -> rollups -> health events

`dataflow` is the whole flow on one page; `judge` is SQL only; `text` is the Arrow function that reads records that fit
no type; `ledger` durably records which windows changed; `recompute` brings rollups and `health` up to date; `run`,
`backfill` and the files around them are the commands. The job takes settings, a Spark session and a store. It must not
run Python code for each good record, and its results must not depend on batches, order or repetition: the store is a
function of the set of valid points. Importing these modules imports pyspark.
"""
