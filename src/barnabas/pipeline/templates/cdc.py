"""Change feed to table: the last value of each key of `source`; a record without a value deletes its key.

The table is Parquet: each batch writes a whole new snapshot, then names it in the file CURRENT, so a batch that is
repeated does no harm and readers never see half of one. Read it with `snapshot`. For large tables take a table format
that has MERGE; Spark's AUTO CDC needs such a one, too.
"""

import shutil
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming import StreamingQuery

KEPT = 3
"""Snapshots that stay for those who still read them."""


def start(
    spark: SparkSession, settings: dict[str, Any], checkpoints: str, trigger: dict[str, Any]
) -> list[StreamingQuery]:
    table = Path(settings["table"])
    changes = (
        spark.readStream.format("barnabas")
        .options(**settings["kafka"])
        .option("subscribe", settings["source"])
        .option("startingOffsets", "earliest")
        .option("isolationLevel", "read_committed")
        .load()
    )

    def merge(batch: DataFrame, number: int) -> None:
        before = snapshot(spark, table, below=number)
        latest = batch.groupBy("key").agg(
            sql.max_by(sql.struct("value", "timestamp"), "offset").alias("last"), sql.max("offset").alias("offset")
        )
        new = latest.select("key", "last.value", "last.timestamp", "offset")
        merged = new if before is None else before.join(new, "key", "left_anti").unionByName(new)
        merged.where(sql.col("value").isNotNull()).write.mode("overwrite").parquet(str(table / str(number)))
        _name(table, number)

    to = changes.writeStream.queryName("cdc").foreachBatch(merge).option("checkpointLocation", f"{checkpoints}/cdc")
    return [to.trigger(**trigger).start()]


def snapshot(spark: SparkSession, table: Path, below: int | None = None) -> DataFrame | None:
    """The table: key, value, timestamp and offset of each key. `below`: as it was before this batch."""
    numbers = [int(path.name) for path in table.glob("[0-9]*")]
    current = int((table / "CURRENT").read_text()) if (table / "CURRENT").exists() else -1
    found = [number for number in numbers if number <= current and (below is None or number < below)]
    return spark.read.parquet(str(table / str(max(found)))) if found else None


def _name(table: Path, number: int) -> None:
    new = table / "CURRENT.new"
    new.write_text(str(number))
    new.replace(table / "CURRENT")
    for path in sorted(table.glob("[0-9]*"), key=lambda path: int(path.name))[:-KEPT]:
        shutil.rmtree(path)
