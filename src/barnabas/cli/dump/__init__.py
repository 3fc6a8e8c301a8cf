"""`barnabas dump-log`: readers for every file of a Kafka data directory, which print its contents and its defects.

Main parts: `log_file` (segments of all formats), `index_files`, `state_files` (snapshots, checkpoints),
`internal_topics`. They only read, trust nothing in a file, and go on after damage as far as that makes sense.
"""
