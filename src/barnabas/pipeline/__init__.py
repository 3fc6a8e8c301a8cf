"""`barnabas pipeline`: data pipelines on Spark, and tools for those that run.

Above everything else: it may use the command line's parts and the data source. pyspark is imported only where a
session is started.
"""
