"""Consumer groups of the classic protocol, stored in __consumer_offsets.

`classic_group` has a group and its rules, `group_metadata_manager` handles the requests of members, `rebalancer` the
rebalances, `offset_metadata_manager` the committed offsets, `group_coordinator_shard` all groups of one partition, and
`group_coordinator` the interface for the broker. Only `group_coordinator` has a clock, an event loop and randomness.
"""
