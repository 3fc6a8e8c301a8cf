"""Membership in a consumer group: join, sync, heartbeat, rebalance, committed offsets (classic protocol)."""
