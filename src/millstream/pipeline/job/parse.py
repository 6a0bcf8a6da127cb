"""From the bytes of records to columns, in SQL expressions: one row per telemetry record.

A record holds one JSON object (flat, nested, or the nested form in an envelope) or an array of them. Nothing is
judged here: a field that is missing or cannot be read is null, and `judge` says what that means. The column `body`
is the object as a variant, for what judging needs to know about types.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from millstream.pipeline.job.reasons import Limits

_BLANKS = r"' \t\r\n'"
_RFC_3339 = r"^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$"
_NUMBER = r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"


def parsed(records: DataFrame, limits: Limits) -> DataFrame:
    """Rows with the record's columns, `element` (the place in an array, else null), `body` and the fields as text;
    `time` and `value_number` where these can be read."""
    return _fields(_bodies(_documents(records, limits)))


def member(body: str, path: str, kind: str = "string") -> Column:
    return f.try_variant_get(f.col(body), f"$.{path}", kind)


def type_of(body: str, path: str) -> Column:
    """The JSON type of a member, as Spark names it: STRING, BIGINT, OBJECT<...>, VOID for null."""
    return f.schema_of_variant(member(body, path, "variant"))


def _documents(records: DataFrame, limits: Limits) -> DataFrame:
    """`document` is the record's JSON as the first element of an array whose second is 0: the parser ignores what
    follows a complete value, and would take `{...} rubbish` for an object otherwise."""
    size = f.octet_length("value")
    text = f.when(size.between(1, limits.max_record_bytes), f.col("value").cast("string"))
    sized = records.select("*", f.coalesce(size, f.lit(0)).alias("size_bytes"), text.alias("text"))
    whole = f.try_parse_json(f.concat(f.lit("["), f.col("text"), f.lit(",0]")))
    return sized.select(
        "*",
        f.substring(f.expr(f"trim(LEADING {_BLANKS} FROM text)"), 1, 1).alias("opener"),
        f.when(f.is_valid_utf8("text"), whole).alias("document"),
    )


def _bodies(documents: DataFrame) -> DataFrame:
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
    in_envelope = member("outer_body", "metric_name", "variant").isNull() & type_of(
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


def _fields(bodies: DataFrame) -> DataFrame:
    def known(*paths: str) -> Column:
        return f.coalesce(*(member("body", path) for path in paths))

    gpu_id = member("body", "gpu_id")
    # In the nested form `gpu_id` is the uuid, and the number of the GPU is a label.
    names_gpu = gpu_id.rlike("^[A-Za-z]")
    texts = bodies.select(
        "*",
        known("timestamp").alias("timestamp_text"),
        known("metric_name").alias("metric"),
        f.coalesce(
            f.nullif(member("body", "uuid"), f.lit("")), f.when(names_gpu, gpu_id), f.col("envelope_key")
        ).alias("uuid"),
        f.when(names_gpu, member("body", "labels.gpu")).otherwise(gpu_id).alias("gpu_id"),
        known("device").alias("device"),
        known("modelName", "labels.model_name").alias("model_name"),
        known("Hostname", "hostname").alias("hostname"),
        known("container", "labels.container").alias("container"),
        known("pod", "labels.pod").alias("pod"),
        known("namespace", "labels.namespace").alias("namespace"),
        known("labels_raw", "labels").alias("labels_raw"),
        known("value").alias("value_text"),
    )
    value_text = f.col("value_text")
    return texts.select(
        "*",
        f.when(f.col("timestamp_text").rlike(_RFC_3339), f.try_to_timestamp("timestamp_text")).alias("time"),
        f.when(value_text.rlike(_NUMBER), value_text.try_cast("double")).alias("value_number"),
    )


def _without(frame: DataFrame, *names: str) -> list[str]:
    return [name for name in frame.columns if name not in names]
