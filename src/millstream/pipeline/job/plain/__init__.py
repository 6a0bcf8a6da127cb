"""Plain telemetry records, from bytes to points without Spark's JSON parser: compiled loops over Arrow columns.

    scan      JSON strings, numbers and times, where they begin and end
    members   the members of an object, found by name
    record    whether a record is plainly right, and where its fields are
    sift      a batch of records: the points, and which records are doubtful

A record is plain when nothing about it needs a second thought. Everything else is doubtful, and what becomes of it is
for `parse` and `judge` to say; for a plain record they would say the same.
"""
