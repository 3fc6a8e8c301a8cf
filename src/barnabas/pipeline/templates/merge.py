"""Change feed to a Delta table: the last value of each key of `source`; a record without a value deletes its key.

Each batch is one MERGE, so readers see all of it or nothing, and a batch that is repeated changes nothing more. Other
formats that have MERGE take the same statements under a table's name in their catalog.
"""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming import StreamingQuery

MERGE = """
MERGE INTO {table} t USING {{changes}} c ON t.key = c.key
WHEN MATCHED AND c.value IS NULL THEN DELETE
WHEN MATCHED THEN UPDATE SET *
WHEN NOT MATCHED AND c.value IS NOT NULL THEN INSERT *
"""


def start(
    spark: SparkSession, settings: dict[str, Any], checkpoints: str, trigger: dict[str, Any]
) -> list[StreamingQuery]:
    path = settings["table"]
    table = f"delta.`{path}`"
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table} (key BINARY, value BINARY, timestamp TIMESTAMP, offset BIGINT) USING delta"
    )
    changes = (
        spark.readStream.format("barnabas")
        .options(**settings["kafka"])
        .option("subscribe", settings["source"])
        .option("startingOffsets", "earliest")
        .option("isolationLevel", "read_committed")
        .load()
    )

    def merge(batch: DataFrame, number: int) -> None:
        latest = batch.groupBy("key").agg(
            sql.max_by(sql.struct("value", "timestamp"), "offset").alias("last"), sql.max("offset").alias("offset")
        )
        rows = latest.where("key IS NOT NULL").select("key", "last.value", "last.timestamp", "offset")
        batch.sparkSession.sql(MERGE.format(table=table), changes=rows)

    to = changes.writeStream.queryName("merge").foreachBatch(merge).option("checkpointLocation", f"{checkpoints}/merge")
    return [to.trigger(**trigger).start()]
