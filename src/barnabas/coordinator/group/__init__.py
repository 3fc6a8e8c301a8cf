"""Consumer groups of the classic protocol, as __consumer_offsets remembers them.

`state` holds one group and its rules, `membership` the flows of join, sync, heartbeat and leave, `offsets` the
committed offsets, `shard` all groups of one partition, `coordinator` the door for the broker. It must never know
sockets, and below `coordinator` no clock, no loop and no randomness either.
"""
