"""A topic to a Parquet file, in Arrow tables. Needs `pip install 'barnabas[arrow]'`."""

import os
import tempfile
from pathlib import Path

import pyarrow.parquet

import barnabas

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP", "127.0.0.1:9092")
COUNT = 10_000


def main() -> None:
    with barnabas.Producer(bootstrap_servers=SERVERS) as producer:
        producer.send_many("example-measures", [b"%d" % number for number in range(COUNT)])

    file = Path(tempfile.mkdtemp()) / "measures.parquet"
    with barnabas.Consumer(
        "example-measures",
        bootstrap_servers=SERVERS,
        group_id="example-archive",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        rows, writer = 0, None
        for table in consumer.arrow():
            writer = writer or pyarrow.parquet.ParquetWriter(file, table.schema)
            writer.write_table(table)
            rows += len(table)
            if rows >= COUNT:  # a service would begin the next file
                break
        writer.close()  # the file is whole: now its records count as read
        consumer.commit()
    print(f"{pyarrow.parquet.read_metadata(file).num_rows} rows")


if __name__ == "__main__":
    main()
