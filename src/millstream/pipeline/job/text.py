"""The fields of records that the typed source could not take, from their bytes: one row per telemetry record.

A record holds one JSON object (flat, nested, or the nested form in an envelope) or an array of them. Nothing is
judged here: a field that is missing or cannot be read is null, and `judge` says what that means. The column `body`
is the object as a variant, for what judging needs to know about types.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from millstream.pipeline.declaration import LABELS, Declaration
from millstream.pipeline.job.reasons import Limits
from millstream.pipeline.job.records import RECORD_COLUMNS

_BLANKS = r"' \t\r\n'"
_RFC_3339 = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"
_NUMBER = r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"


def text_fields(records: DataFrame, limits: Limits) -> DataFrame:
    """The columns of `typed_fields` from the bytes, and beside them `body`, and time and value as text.

    `element` is the place in an array, else null.
    """
    return _fields(_bodies(_documents(records, limits), limits.declaration), limits.declaration)


def member(body: str, path: str, kind: str = "string") -> Column:
    steps = "".join(f"['{step}']" for step in path.split("."))
    return f.try_variant_get(f.col(body), f"${steps}", kind)


def type_of(body: str, path: str) -> Column:
    """The JSON type of a member, as Spark names it: STRING, BIGINT, OBJECT<...>, VOID for null."""
    return f.schema_of_variant(member(body, path, "variant"))


def _documents(records: DataFrame, limits: Limits) -> DataFrame:
    """`document` is the record's JSON as the first element of an array whose second is 0: the parser ignores what
    follows a complete value, and would take `{...} rubbish` for an object otherwise."""
    size = f.octet_length("serializedValue")
    text = f.when(size.between(1, limits.max_record_bytes), f.col("serializedValue").cast("string"))
    sized = records.select(
        *RECORD_COLUMNS, f.coalesce(size, f.lit(0)).alias("size_bytes"), text.alias("text")
    )
    whole = f.try_parse_json(f.concat(f.lit("["), f.col("text"), f.lit(",0]")))
    return sized.select(
        "*",
        f.substring(f.expr(f"trim(LEADING {_BLANKS} FROM text)"), 1, 1).alias("opener"),
        f.when(f.is_valid_utf8("text"), whole).alias("document"),
    )


def _bodies(documents: DataFrame, declared: Declaration) -> DataFrame:
    """One row per object: arrays are taken apart, envelopes opened. An array that is empty gives one row."""
    document = f.col("document")
    is_whole = (
        f.try_variant_get(document, "$[1]", "variant").isNotNull()
        & f.try_variant_get(document, "$[2]", "variant").isNull()
    )
    is_array = f.col("opener") == "["
    elements = f.when(is_array, f.try_variant_get(document, "$[0]", "array<variant>")).otherwise(
        f.array(f.try_variant_get(document, "$[0]", "variant"))
    )
    listed = documents.select(
        *_without(documents, "text", "document"),
        (f.expr(f"trim(BOTH {_BLANKS} FROM text)") == "").alias("is_blank"),
        f.when(is_whole, elements).alias("elements"),
    )
    single = listed.select(
        *_without(listed, "elements"),
        (f.size("elements") == 0).alias("is_empty_array"),
        f.posexplode_outer("elements").alias("position", "outer_body"),
    )
    # An envelope has no metric of its own, and an object where a record has its number.
    in_envelope = member("outer_body", declared.fields["metric"][0], "variant").isNull() & type_of(
        "outer_body", "value"
    ).startswith("OBJECT")
    return single.select(
        *_without(single, "position", "outer_body"),
        f.when(f.col("opener") == "[", f.col("position")).alias("element"),
        f.when(in_envelope, member("outer_body", "key")).alias("envelope_key"),
        f.when(in_envelope, member("outer_body", "value", "variant"))
        .otherwise(f.col("outer_body"))
        .alias("body"),
    )


def _fields(bodies: DataFrame, declared: Declaration) -> DataFrame:
    def known(column: str) -> Column:
        paths = declared.fields.get(column, ())
        return f.coalesce(*(member("body", path) for path in paths)) if paths else f.lit(None).cast("string")

    fields = {name: known(name) for name in ("metric", "uuid", *LABELS)}
    uuid = f.nullif(fields["uuid"], f.lit(""))
    fields["uuid"] = f.coalesce(uuid, f.col("envelope_key"))
    if declared.nested_gpu_id:
        gpu_id = member("body", "gpu_id")
        names_gpu = gpu_id.rlike("^[A-Za-z]")
        fields["uuid"] = f.coalesce(uuid, f.when(names_gpu, gpu_id), f.col("envelope_key"))
        fields["gpu_id"] = f.when(names_gpu, member("body", "labels.gpu")).otherwise(gpu_id)
    texts = bodies.select(
        "*",
        known("time").alias("timestamp_text"),
        known("value").alias("value_text"),
        *(column.alias(name) for name, column in fields.items()),
    )
    time_text, value_text = f.upper("timestamp_text"), f.col("value_text")
    return texts.select(
        "*",
        f.when(time_text.rlike(_RFC_3339), f.try_to_timestamp(time_text)).alias("time"),
        f.when(value_text.rlike(_NUMBER), value_text.try_cast("double")).alias("value_number"),
    )


def _without(frame: DataFrame, *names: str) -> list[str]:
    return [name for name in frame.columns if name not in names]
