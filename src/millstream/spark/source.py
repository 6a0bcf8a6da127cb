"""The data source itself, from which Spark gets schema, readers and writers."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from millstream.spark.errors import OptionError
from millstream.spark.options import include_headers, read_options
from millstream.spark.typed.layout import default_schema, layout_of
from millstream.spark.write_options import write_options


class MillstreamDataSource(DataSource):
    """`format("millstream")`: topics of any Kafka cluster, with the options and columns of Spark's Kafka source.

        spark.readStream.format("millstream").option("kafka.bootstrap.servers", "localhost:9092") \\
            .option("subscribe", "events").load()

    With `value.format` the values are typed, as `schema` says:

        spark.read.format("millstream").option("subscribe", "events").option("value.format", "json") \\
            .schema("value struct<id: bigint, name: string>, partition int, offset bigint").load()
    """

    @classmethod
    def name(cls) -> str:
        return "millstream"

    def schema(self) -> StructType:
        return default_schema(self.options, headers=include_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from millstream.spark.readers import BatchReader

        return BatchReader(read_options(self.options, streaming=False), layout_of(self.options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from millstream.spark.readers import StreamReader

        return StreamReader(read_options(self.options, streaming=True), layout_of(self.options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from millstream.spark.writers import BatchWriter

        if overwrite:
            raise OptionError("a topic cannot be overwritten; use mode('append')")
        return BatchWriter(write_options(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        from millstream.spark.writers import StreamWriter

        return StreamWriter(write_options(self.options, schema))
