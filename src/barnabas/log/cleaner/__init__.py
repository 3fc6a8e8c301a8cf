"""Log compaction: rewrites a log with only the last record of each key.

`choice` says which log and how far, `manager` runs it, `process` and `worker` do the work in a process of its own,
`rewrite` is that work, `swap` puts its result into the log. Knows no event loop and no protocol.
"""
