"""Topic to topic: what `transform` makes of the records of `source`, each once, in `target`."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming import StreamingQuery


def transform(records: DataFrame) -> DataFrame:
    """Yours: columns key and value come out."""
    return records.where(sql.col("value").isNotNull()).select("key", "value")


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
    to = transform(records).writeStream.queryName("copy").format("barnabas").options(**settings["kafka"])
    to = to.option("topic", settings["target"]).option("checkpointLocation", f"{checkpoints}/copy")
    return [to.trigger(**trigger).start()]
