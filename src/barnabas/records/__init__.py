"""Record batches: reading, checking and building the bytes that producers, logs and consumers share.

Main parts: `batch` (the v2 header, CRC-32C), `validation` (a leader's checks before it appends), `builder`,
`compression`, `legacy` (v0 and v1 message sets), `FileSlice`; `compiled` has the loops over every record. The package
must never know names of files, partitions or sockets.
"""
