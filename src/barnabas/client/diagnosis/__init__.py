"""Finds out why a client cannot connect: `barnabas doctor`.

Main functions: `checks.diagnose`, which yields one `Check` after the other, `liveness.find_live_broker` and
`round_trip.round_trip`. They know nothing of the command line.
"""
