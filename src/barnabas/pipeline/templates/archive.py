"""Topic to files (Parquet, or a Delta table): every committed record of `source` as it is, by day, once each."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming import StreamingQuery


def start(
    spark: SparkSession, settings: dict[str, Any], checkpoints: str, trigger: dict[str, Any]
) -> list[StreamingQuery]:
    records = (
        spark.readStream.format("barnabas")
        .options(**settings["kafka"])
        .option("subscribe", settings["source"])
        .option("startingOffsets", "earliest")
        .option("isolationLevel", "read_committed")
        .option("includeHeaders", "true")
        .load()
    )
    rows = _by_day(records)
    to = rows.writeStream.queryName("archive").format(settings["format"]).partitionBy("topic", "day")
    to = to.option("path", settings["archive"]).option("checkpointLocation", f"{checkpoints}/archive")
    return [to.trigger(**trigger).start()]


def _by_day(records: DataFrame) -> DataFrame:
    columns = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
    return records.select(*columns, sql.to_date("timestamp").alias("day"))
