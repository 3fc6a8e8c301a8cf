"""Spark's own Kafka connector beside Barnabas's: one Spark session for each round, its rows, table and plot."""
