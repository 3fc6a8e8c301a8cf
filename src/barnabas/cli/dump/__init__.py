"""Readers for every file of a Kafka data directory, which print what is there and say what is wrong with it.

Main parts: `log_file` (segments of all formats), `index_files`, `state_files` (snapshots, checkpoints),
`offsets_topic`. They only read, trust nothing in a file, and go on after damage as far as that makes sense.
"""
