"""The data source itself: what Spark asks first, and the readers and writers it gets."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millstream.spark.options import include_headers, read_options
from millstream.spark.wire.errors import OptionError
from millstream.spark.write_options import write_options

_COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_COLUMNS_WITH_HEADERS = StructType([*_COLUMNS.fields, StructField("headers", ArrayType(_HEADER))])


class MillstreamDataSource(DataSource):
    """`format("millstream")`: topics of any Kafka cluster, with the options and columns of Spark's Kafka source.

        spark.readStream.format("millstream").option("kafka.bootstrap.servers", "localhost:9092") \\
            .option("subscribe", "events").load()
    """

    @classmethod
    def name(cls) -> str:
        return "millstream"

    def schema(self) -> StructType:
        return _COLUMNS_WITH_HEADERS if include_headers(self.options) else _COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        from millstream.spark.batch_reader import BatchReader

        self._check(schema)
        return BatchReader(read_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from millstream.spark.stream_reader import StreamReader

        self._check(schema)
        return StreamReader(read_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from millstream.spark.writers import BatchWriter

        if overwrite:
            raise OptionError("a topic cannot be overwritten; use mode('append')")
        return BatchWriter(write_options(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        from millstream.spark.writers import StreamWriter

        return StreamWriter(write_options(self.options, schema))

    def _check(self, schema: StructType) -> None:
        if schema != self.schema():
            raise OptionError("the columns of this source are fixed; leave out schema()")
