"""What a client of Spark Connect does: `connect_client.py SERVER BROKERS TOPIC DIRECTORY`. In a process of its own, for
a process has sessions of one kind only. Prints what it has found as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession


def main() -> None:
    server, brokers, topic, directory = sys.argv[1:]
    spark = SparkSession.builder.remote(server).getOrCreate()
    reader = {"bootstrap.servers": brokers, "startingOffsets": "earliest"}
    writer = {"bootstrap.servers": brokers}

    def read(name: str) -> list[int]:
        rows = spark.read.format("barnabas").options(**reader).option("subscribe", name).load()
        return sorted(int(row.value) for row in rows.select("value").collect())

    def copy(to: str) -> Any:
        rows = spark.readStream.format("barnabas").options(**reader).option("subscribe", topic).load()
        query = rows.select("key", "value").writeStream.format("barnabas").options(**writer).option("topic", to)
        return query.option("checkpointLocation", directory).trigger(availableNow=True).start()

    def save(first: int) -> None:
        rows = spark.range(first, first + 100, 1, 2).selectExpr("cast(id as string) as value")
        rows.write.format("barnabas").mode("append").options(**writer).option("topic", topic).save()

    save(0)
    found: dict[str, Any] = {"kind": type(spark).__module__, "written": read(topic), "progress": []}
    for first in (100, 200):
        copied = copy(f"{topic}-copy")
        copied.awaitTermination(120)
        found["progress"].append(copied.lastProgress["sources"][0]["numInputRows"])
        save(first)
    copied = copy(f"{topic}-copy")
    copied.awaitTermination(120)
    found["copied"] = read(f"{topic}-copy")
    spark.read.format("barnabas").options(**reader).option("subscribe", topic).load().createOrReplaceTempView("records")
    found["sql"] = spark.sql("select count(*) as n, min(offset) as first from records").collect()[0].asDict()
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
