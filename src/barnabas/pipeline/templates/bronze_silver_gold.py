"""Bronze, silver, gold: raw records as Parquet, clean ones as a topic, and figures by the hour as a compacted topic.

Silver goes on from `source` as bronze does; gold reads the topic of silver. Each has a checkpoint of its own.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming import StreamingQuery

SCHEMA = "id bigint, total double, customer string"
"""The schema of the values. Replace it with yours."""
PATIENCE = "1 hour"
"""The time by which a record may be late and still count."""


def start(
    spark: SparkSession, settings: dict[str, Any], checkpoints: str, trigger: dict[str, Any]
) -> Iterator[list[StreamingQuery]]:
    """Yields the queries that run together; with `--once` gold begins when silver has written all."""
    raw = _read(spark, settings, settings["source"])
    bronze = raw.writeStream.queryName("bronze").format("parquet").option("path", settings["bronze"])
    yield [
        bronze.option("checkpointLocation", f"{checkpoints}/bronze").trigger(**trigger).start(),
        _write(cleaned(raw), "silver", settings, checkpoints).trigger(**trigger).start(),
    ]
    clean = _read(spark, settings, settings["silver"])
    yield [_gold(summed_up(clean), settings, checkpoints).trigger(**trigger).start()]


def cleaned(raw: DataFrame) -> DataFrame:
    """Yours: what is no JSON, or has no customer, is left out."""
    row = sql.from_json(sql.col("value").cast("string"), SCHEMA)
    rows = raw.select("timestamp", row.alias("row")).select("timestamp", "row.*").where(sql.col("customer").isNotNull())
    value = sql.to_json(sql.struct("id", "total", "customer")).alias("value")
    return rows.select(sql.col("customer").alias("key"), value, "timestamp")


def summed_up(clean: DataFrame) -> DataFrame:
    """Yours: a row for each customer and hour."""
    row = sql.from_json(sql.col("value").cast("string"), SCHEMA)
    rows = clean.select("timestamp", row.alias("row")).select("timestamp", "row.*")
    hours = rows.withWatermark("timestamp", PATIENCE).groupBy(
        sql.window("timestamp", "1 hour").alias("hour"), "customer"
    )
    return hours.agg(sql.count("*").alias("orders"), sql.sum("total").alias("total"))


def _read(spark: SparkSession, settings: dict[str, Any], topic: str) -> DataFrame:
    records = spark.readStream.format("barnabas").options(**settings["kafka"]).option("subscribe", topic)
    return records.option("startingOffsets", "earliest").option("isolationLevel", "read_committed").load()


def _write(rows: DataFrame, name: str, settings: dict[str, Any], checkpoints: str) -> Any:
    to = rows.writeStream.queryName(name).format("barnabas").options(**settings["kafka"])
    return to.option("topic", settings[name]).option("checkpointLocation", f"{checkpoints}/{name}")


def _gold(rows: DataFrame, settings: dict[str, Any], checkpoints: str) -> Any:
    """In update mode: the latest figures of an hour replace the ones before, under the same key."""

    def write(batch: DataFrame, number: int) -> None:
        hour = sql.date_format("hour.start", "yyyy-MM-dd'T'HH:mm:ss")
        value = sql.to_json(sql.struct("customer", hour.alias("hour"), "orders", "total")).alias("value")
        to = batch.select(sql.concat_ws("|", "customer", hour).alias("key"), value).write.format("barnabas")
        to = to.mode("append").options(**settings["kafka"]).option("topic", settings["gold"])
        to.option("txnAppId", f"{settings['name']}-gold").option("txnVersion", number).save()

    to = rows.writeStream.queryName("gold").outputMode("update").foreachBatch(write)
    return to.option("checkpointLocation", f"{checkpoints}/gold")
