"""`barnabas sql`: topics as tables, in a Spark session of this process."""
