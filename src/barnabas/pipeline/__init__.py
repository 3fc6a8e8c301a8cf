"""Data pipelines on Spark, and tools for the checkpoints of those that run.

It knows no command line: what people are to see goes to a `Display`. pyspark is imported only where a session is
started.
"""
