"""Health events: the problems of a GPU, with start, end, severity and evidence.

There are three steps. `signs` (Spark) searches the minute rollups of an hour for runs of minutes with a sign: heat,
power, idle work, growing memory, errors, or simply presence. `events` (pure Python) joins the runs of neighbouring
hours and decides which are events. `watch` keeps runs and events of each hour in a file of its own, so that a changed
hour can be computed again without its history, and reports the changes. The input is rollups, settings and the time of
the newest point. No result may depend on the order in which hours were computed.
"""
