"""The loops over every record: plain typed Python, which mypyc compiles if there is a C compiler.

`record_walk` checks, reads and writes the records of a batch. `consumer_records` and `record_columns` make objects and
columns of fetched records. `bulk_rows` reads rows to be sent. `offset_map` and `batch_filter` are the log cleaner's.

The code between `# begin` and `# end` comes from the templates in `tools/generate_record_walks.py`.
"""
