"""Registers the data source with Spark, which imports all modules named `pyspark_*`."""

from barnabas.spark.data_source import BarnabasDataSource as DefaultSource

__all__ = ["DefaultSource"]
