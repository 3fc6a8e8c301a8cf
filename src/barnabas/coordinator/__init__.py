"""Coordinators: state machines over their own internal topic.

`machine` says what a state machine is, `runtime` appends what an operation decided and parks its response until it is
committed, `loading`, `waiting` and `timers` serve it; `group` holds consumer groups, `transaction` transactional ids.
It must never answer before the records are committed, nor change durable state but by replaying them.
"""
