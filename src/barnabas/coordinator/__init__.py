"""Coordinators: state machines over their own internal topics.

`coordinator_shard` defines the state machine, `coordinator_runtime` appends its records and holds responses until they
are committed. `group` has the consumer groups, `transaction` the transactional ids. No response leaves before its
records are committed, and durable state changes only by the replay of records.
"""
