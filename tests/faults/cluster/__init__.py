"""Faults of a cluster of broker processes, drawn from a seed, and a checker of what its clients were told.

`plan.py` draws the faults, `brokers.py` runs the processes, `links.py` cuts them off from each other,
`bad_machine.py` and `bad_allocator.py` have their disks, clocks and allocations fail. `clients.py` and
`transactional_clients.py` write, read and copy meanwhile, and note what happens in a `history.py`. `checker.py` finds
the anomalies in a history, `replicas.py` compares the files of the replicas, `timeline.py` tells how long a fault was
felt. `rounds.py` puts a round together.
"""
