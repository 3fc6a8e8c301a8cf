"""The demo's two queries: raw events to Parquet, and delays per carrier and hour to a compacted topic.

Both read the same topic, each by its own checkpoint. The delays come in update mode: whatever a batch changes is
written again under the same key, so the topic has the latest figures at any time and nothing waits for the end of the
year. A day goes by as a whole (see `replay`), so that two days of patience leave nothing out.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.pipeline.demo.topics import AIRLINES, AIRPORTS, DELAYS, EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["LATE_MINUTES", "PATIENCE", "start_archive", "start_delays", "table"]

LATE_MINUTES: Final = 15
PATIENCE: Final = "2 days"
_TRIGGER: Final = "1 second"
_FLIGHT: Final = "carrier string, dest string, dep_delay int, distance int"
_AIRLINE: Final = "carrier string, name string"
_AIRPORT: Final = "faa string, name string"


def table(spark: "SparkSession", servers: str, topic: str, schema: str) -> "DataFrame":
    """A compacted topic as a table: the latest value of each key."""
    from pyspark.sql import functions as sql

    rows = spark.read.format("barnabas").option("bootstrap.servers", servers).option("subscribe", topic).load()
    latest = rows.groupBy("key").agg(sql.max_by("value", "offset").alias("value"))
    parsed = latest.select(sql.from_json(sql.col("value").cast("string"), schema).alias("row")).select("row.*")
    return parsed.localCheckpoint()  # read once, not with each micro-batch


def _events(spark: "SparkSession", servers: str) -> "DataFrame":
    options = {"subscribe": EVENTS, "startingOffsets": "earliest", "isolationLevel": "read_committed"}
    return spark.readStream.format("barnabas").option("bootstrap.servers", servers).options(**options).load()


def start_archive(spark: "SparkSession", servers: str, path: Path, checkpoint: Path) -> "StreamingQuery":
    rows = _events(spark, servers).select("key", "value", "partition", "offset", "timestamp")
    to = rows.writeStream.queryName("archive").format("parquet").option("path", str(path))
    return to.option("checkpointLocation", str(checkpoint)).trigger(processingTime=_TRIGGER).start()


def start_delays(spark: "SparkSession", servers: str, app_id: str, checkpoint: Path) -> "StreamingQuery":
    """`app_id` is the name under which its batches are written once."""

    def write(rows: "DataFrame", batch: int) -> None:
        to = _as_records(rows, batch).write.format("barnabas").mode("append").option("bootstrap.servers", servers)
        to.option("topic", DELAYS).option("txnAppId", app_id).option("txnVersion", batch).save()

    to = _delays(spark, servers).writeStream.queryName("delays").outputMode("update").foreachBatch(write)
    return to.option("checkpointLocation", str(checkpoint)).trigger(processingTime=_TRIGGER).start()


def _delays(spark: "SparkSession", servers: str) -> "DataFrame":
    from pyspark.sql import functions as sql

    airlines = table(spark, servers, AIRLINES, _AIRLINE).withColumnRenamed("name", "airline")
    airports = table(spark, servers, AIRPORTS, _AIRPORT).select(sql.col("faa").alias("dest"), "name")
    flight = sql.from_json(sql.col("value").cast("string"), _FLIGHT).alias("flight")
    flights = _events(spark, servers).select("timestamp", flight).select("timestamp", "flight.*")
    joined = flights.join(sql.broadcast(airlines), "carrier", "left").join(sql.broadcast(airports), "dest", "left")
    hour = sql.window("timestamp", "1 hour").alias("hour")
    # some destinations are in no list of airports
    farthest = sql.max(sql.struct("distance", sql.coalesce("name", "dest").alias("name"))).alias("farthest")
    return (
        joined.withWatermark("timestamp", PATIENCE)
        .groupBy(hour, "carrier", "airline")
        .agg(
            sql.count("*").alias("flights"),
            sql.count("dep_delay").alias("departed"),
            sql.count_if(sql.col("dep_delay") > LATE_MINUTES).alias("late"),
            sql.sum("dep_delay").alias("delay_minutes"),
            sql.max("dep_delay").alias("worst"),
            farthest,
        )
    )


def _as_records(rows: "DataFrame", batch: int) -> "DataFrame":
    """Key `UA|2013-01-01T10:00:00Z`, value JSON; the batch's number shows that none was written twice."""
    from pyspark.sql import functions as sql

    hour: Any = sql.date_format("hour.start", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    figures = ("flights", "departed", "late", "delay_minutes", "worst")
    farthest = (sql.col("farthest.name").alias("farthest"), sql.col("farthest.distance").alias("miles"))
    columns = ("carrier", "airline", hour.alias("hour"), *figures, *farthest, sql.lit(batch).alias("batch"))
    value = sql.to_json(sql.struct(*columns), {"ignoreNullFields": "false"})
    return rows.select(sql.concat_ws("|", "carrier", hour).alias("key"), value.alias("value"))
