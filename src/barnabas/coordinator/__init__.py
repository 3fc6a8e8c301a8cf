"""Coordinators: state machines over their own internal topic.

`runtime` appends what an operation decided and parks its response until it is committed; `group` holds consumer
groups. It must never answer before the records are committed, nor change state but by replaying them.
"""
