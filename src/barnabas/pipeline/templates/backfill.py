"""Files to topic: the archive that template `archive` has written, or some days of it, into `target`.

All of it is one write with a name and a version: run again, it is not written again. Raise `version` for another one.
"""

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming import StreamingQuery


def start(
    spark: SparkSession, settings: dict[str, Any], checkpoints: str, trigger: dict[str, Any]
) -> list[StreamingQuery]:
    rows = spark.read.format(settings["format"]).load(settings["archive"])
    rows = rows.where(sql.col("topic") == settings["source"])
    if settings["from_day"]:
        rows = rows.where(sql.col("day") >= settings["from_day"])
    if settings["to_day"]:
        rows = rows.where(sql.col("day") <= settings["to_day"])
    # in the order in which they were written, as far as partitions go
    ordered = rows.repartition("partition").sortWithinPartitions("partition", "offset")
    to = ordered.select("key", "value", "headers", "timestamp").write.format("barnabas").mode("append")
    to = to.options(**settings["kafka"]).option("topic", settings["target"])
    to.option("txnAppId", settings["name"]).option("txnVersion", settings["version"]).save()
    return []
