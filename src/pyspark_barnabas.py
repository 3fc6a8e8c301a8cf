"""Where Spark looks for data sources: `spark.read.format("barnabas")` works wherever Barnabas is installed."""

from barnabas.spark.data_source import BarnabasDataSource as DefaultSource

__all__ = ["DefaultSource"]
