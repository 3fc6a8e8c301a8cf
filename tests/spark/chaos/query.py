"""One run of a query from topic `in` to topic `out` until all is read: `query.py DIRECTORY SERVERS MODE TASKS`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

BATCH = 40


def main() -> int:
    from barnabas.spark import session

    directory, servers, mode, tasks = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.driver.memory": "700m",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(tasks),
    }
    spark = session("chaos", master="local[2,2]", settings=settings)
    gateway = spark.sparkContext._gateway
    (directory / "jvm.pid").write_text(str(gateway.proc.pid))
    options = {"bootstrap.servers": servers, "subscribe": "in", "startingOffsets": "earliest"}
    source = spark.readStream.format("barnabas").options(**options, maxOffsetsPerTrigger=BATCH).load()
    rows = source.select("key", "value").repartition(tasks, "value")
    writer = rows.writeStream.format("sinkchaos").option("bootstrap.servers", servers).option("topic", "out")
    writer = writer.option("exactlyOnce", mode).option("kafka.chaos", str(directory))
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    try:
        query.awaitTermination(150)
        still_runs = query.isActive
    except Exception as error:
        print(str(error)[-2000:], flush=True)
        os._exit(3)
    os._exit(4 if still_runs else 0)


if __name__ == "__main__":
    sys.exit(main())
