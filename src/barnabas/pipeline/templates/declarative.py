"""Bronze, silver, gold as a declarative pipeline (`pyspark.pipelines`): each function is a table, Spark runs them in
order. Topic `source` to table bronze as it is; what is of the right form to table silver and to topic `silver`, all
else to topic `dead_letters`, with why; figures by customer to the materialised view gold.

Take `select` rather than `withColumn` on a table of the pipeline: Spark (up to 4.3) then does not see that one table is
read by another, and no longer runs them in order. Functions are called where they are defined, so helpers stand above.
"""

from pathlib import Path
from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from barnabas.pipeline.project import load_settings

settings = load_settings(Path(__file__).resolve().parents[1])
spark = SparkSession.active()

SCHEMA = "id bigint, total double, customer string"
"""The schema of the values. Replace it with yours."""
NEEDED = ("id", "customer")
"""Fields that must be there."""


@dp.table(comment="every committed record, as it is")
def bronze() -> DataFrame:
    records = spark.readStream.format("barnabas").options(**settings["kafka"]).option("subscribe", settings["source"])
    return records.option("startingOffsets", "earliest").option("isolationLevel", "read_committed").load()


def checked() -> DataFrame:
    """Records with what their values say, and what is wrong with them: null if nothing is. Declarative pipelines have
    no expectations outside of Databricks."""
    row = sql.from_json(
        sql.col("value").cast("string"), f"{SCHEMA}, _corrupt string", {"columnNameOfCorruptRecord": "_corrupt"}
    )
    parsed = spark.readStream.table("bronze").select("*", row.alias("parsed"))
    why = sql.when(sql.col("value").isNull(), "there is no value")
    why = why.when(sql.col("parsed._corrupt").isNotNull(), "it is no JSON of the right form")
    for name in NEEDED:
        why = why.when(sql.col(f"parsed.{name}").isNull(), f"{name} is missing")
    return parsed.select("*", sql.col("parsed").dropFields("_corrupt").alias("row"), why.alias("why"))


def _origin() -> Any:
    """Returns a column with the origin and the defect of a record, as headers."""
    headers = [
        sql.struct(sql.lit(name).alias("key"), sql.col(name).cast("string").cast("binary").alias("value"))
        for name in ("why", "topic", "partition", "offset")
    ]
    return sql.array(*headers).alias("headers")


@dp.table(comment="records of the right form")
def silver() -> DataFrame:
    return checked().where("why IS NULL").select("row.*", "timestamp")


@dp.materialized_view(comment="made anew by each run")
def gold() -> DataFrame:
    rows = spark.read.table("silver").groupBy("customer")
    return rows.agg(sql.count("*").alias("orders"), sql.sum("total").alias("total"))


dp.create_sink("to_silver", "barnabas", {**settings["kafka"], "topic": settings["silver"]})


@dp.append_flow(target="to_silver", name="silver_topic")
def silver_topic() -> DataFrame:
    value = sql.to_json(sql.struct("id", "total", "customer")).alias("value")
    return spark.readStream.table("silver").select(sql.col("customer").alias("key"), value, "timestamp")


dp.create_sink("to_dead_letters", "barnabas", {**settings["kafka"], "topic": settings["dead_letters"]})


@dp.append_flow(target="to_dead_letters", name="dead_letters")
def dead_letters() -> DataFrame:
    return checked().where("why IS NOT NULL").select("key", "value", _origin())
