"""Records of `source` that are JSON of the right form go to `target`, all others to `dead_letters`, with why."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming import StreamingQuery

SCHEMA = "id bigint, total double, customer string"
"""The schema of the values. Replace it with yours."""
NEEDED = ("id",)
"""Fields that must be there."""


def start(
    spark: SparkSession, settings: dict[str, Any], checkpoints: str, trigger: dict[str, Any]
) -> list[StreamingQuery]:
    records = (
        spark.readStream.format("barnabas")
        .options(**settings["kafka"])
        .option("subscribe", settings["source"])
        .option("startingOffsets", "earliest")
        .option("isolationLevel", "read_committed")
        .load()
    )
    checked = records.withColumn("why", _why())
    good = checked.where(sql.col("why").isNull()).select("key", "value")
    dead = checked.where(sql.col("why").isNotNull()).select("key", "value", _origin())
    return [
        _write(good, "good", settings, settings["target"], checkpoints, trigger),
        _write(dead, "dead", settings, settings["dead_letters"], checkpoints, trigger),
    ]


def _why() -> Any:
    """Returns a column with the defect of a record, null if there is none."""
    row = sql.from_json(
        sql.col("value").cast("string"), f"{SCHEMA}, _corrupt string", {"columnNameOfCorruptRecord": "_corrupt"}
    )
    why = sql.when(sql.col("value").isNull(), "there is no value").when(
        row["_corrupt"].isNotNull(), "it is no JSON of the right form"
    )
    for name in NEEDED:
        why = why.when(row[name].isNull(), f"{name} is missing")
    return why


def _origin() -> Any:
    """Returns a column with the origin and the defect of a record, as headers."""
    parts = {
        "why": sql.col("why"),
        "topic": sql.col("topic"),
        "partition": sql.col("partition"),
        "offset": sql.col("offset"),
    }
    headers = [
        sql.struct(sql.lit(name).alias("key"), column.cast("string").cast("binary").alias("value"))
        for name, column in parts.items()
    ]
    return sql.array(*headers).alias("headers")


def _write(
    rows: DataFrame, name: str, settings: dict[str, Any], topic: str, checkpoints: str, trigger: dict[str, Any]
) -> StreamingQuery:
    to = rows.writeStream.queryName(name).format("barnabas").options(**settings["kafka"]).option("topic", topic)
    return to.option("checkpointLocation", f"{checkpoints}/{name}").trigger(**trigger).start()
