"""Log compaction in a running broker."""
