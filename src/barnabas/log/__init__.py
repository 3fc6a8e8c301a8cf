"""The log of one partition on disk, in Kafka's files and bytes, and the manager of all logs of a data directory.

Main classes: `LogManager`, `UnifiedLog`, `LogSegment`, `OffsetIndex`, `TimeIndex`, `ProducerStateManager`,
`LeaderEpochFileCache`. Nothing here knows requests, sockets, replicas of other brokers or the event loop.
"""
