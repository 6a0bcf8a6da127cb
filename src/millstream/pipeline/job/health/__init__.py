"""Health events: what went wrong with a GPU, from when to when, how badly, and how that is known.

Three steps. `signs` (Spark) finds in the minute rollups of an hour the runs of minutes that show something: heat,
power, idle work, growing memory, errors, or simply presence. `events` (pure Python) joins the runs of neighbouring
hours and decides which are events. `watch` keeps runs and events of each hour in a file of its own, so an hour that
changes is computed again without its history, and says what changed. Comes in: rollups, settings, the time of the
newest point. Must not: anything that depends on the order in which hours were computed.
"""
