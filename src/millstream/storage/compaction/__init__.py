"""Log compaction: of each key, keep the latest record.

A cleaning is a job (`job`) that a process of its own works off (`worker`), because rewriting segments in the
broker's process would hold the interpreter lock: `offset_map` finds the latest offset of each key, `clean`
rewrites segments into `.cleaned` files batch by batch (`batch_cleaner`). The broker's process only chooses
what to clean (`selection`) and puts the new files in place (`swap`). Files go through `runtime.disk`, time
comes in with the job.
"""
