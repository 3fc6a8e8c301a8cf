"""A JVM for queries from topic `in…` to topic `out…`: `query.py MASTER [SETTING=VALUE …]`. Orders come as lines of JSON
to its input, what happens goes as lines of JSON to its output: the JVM's process id, and the end of each query."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

_said = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # the JVM writes where it likes


def tell(**event: Any) -> None:
    _said.write(json.dumps(event) + "\n")


def in_short(error: Exception) -> str:
    """What it is, and where it comes from."""
    text = str(error)
    return text if len(text) < 4000 else f"{text[:2500]}\n...\n{text[-1500:]}"


def start(spark: Any, order: dict[str, Any]) -> Any:
    if order.get("to") == "parquet":
        return start_to_files(spark, order)
    directory, servers, tasks = Path(order["directory"]), order["servers"], order["tasks"]
    source = spark.readStream.format("barnabas").option("bootstrap.servers", servers)
    source = source.option("subscribe", order["source"]).option("startingOffsets", "earliest")
    source = source.option("maxOffsetsPerTrigger", order["batch_rows"]).load()
    rows = source.select("key", "value").repartition(tasks, "value")
    writer = rows.writeStream.format("sinkchaos").option("bootstrap.servers", servers).option("topic", order["sink"])
    writer = writer.option("exactlyOnce", order["mode"]).option("kafka.chaos", str(directory))
    writer = writer.option("kafka.chaos.jitter", order["jitter_ms"])
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    return (writer.trigger(availableNow=True) if order["until_read"] else writer).start()


def start_to_files(spark: Any, order: dict[str, Any]) -> Any:
    """What comes out tells of the source alone: the files are Spark's own business."""
    directory = Path(order["directory"])
    source = spark.readStream.format("barnabas").option("bootstrap.servers", order["servers"])
    source = source.option("startingOffsets", "earliest").option("isolationLevel", "read_committed")
    rows = source.options(**order["options"]).load().selectExpr("topic", "partition", "offset", "CAST(value AS STRING)")
    writer = rows.writeStream.format("parquet").option("path", str(directory / "out"))
    return writer.option("checkpointLocation", str(directory / "checkpoint")).start()


def watch(query: Any, number: int) -> None:
    try:
        query.awaitTermination()
        tell(ended=number, error="")
    except Exception as error:
        tell(ended=number, error=in_short(error))


def report(query: Any) -> None:
    if query is not None:
        tell(progress=f"{json.dumps(query.status)}; the last batch: {query.lastProgress and query.lastProgress.json}")


def main() -> int:
    from barnabas.spark import session

    given = dict(pair.split("=", 1) for pair in sys.argv[2:])
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.driver.memory": "700m",
        "spark.sql.adaptive.enabled": "false",
    }
    spark = session("chaos", master=sys.argv[1], settings={**settings, **given})
    spark.range(8).repartition(2).selectExpr("sum(id)").collect()  # a query is quicker then
    tell(jvm=spark.sparkContext._gateway.proc.pid)
    queries: dict[int, Any] = {}
    for line in sys.stdin:
        order = json.loads(line)
        number = order["number"]
        if order["do"] == "stop":
            queries[number].stop()
            continue
        if order["do"] == "report":
            threading.Thread(
                target=report, args=(queries.get(number),), daemon=True
            ).start()  # a stuck JVM answers late
            continue
        try:
            queries[number] = start(spark, order)
        except Exception as error:
            tell(ended=number, error=in_short(error))
            continue
        threading.Thread(target=watch, args=(queries[number], number), daemon=True).start()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
