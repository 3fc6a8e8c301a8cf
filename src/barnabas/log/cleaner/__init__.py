"""Log compaction: rewrites a log with only the last record of each key.

`cleanable_logs` decides which log is cleaned and how far, `log_cleaner_manager` runs the jobs, `cleaner_worker` is the
process that does them with `cleaner`, and `segment_swap` puts the result into the log. Nothing here knows an event loop
or the broker's protocol.
"""
