"""Serves as a broker with a bug that is planted on purpose: ``planted.py NAME serve …``, on plain Python.

A round whose only fault is that beside it finds it: otherwise its silence would mean nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from barnabas.__main__ import main
from barnabas.records.compiled.record_walk import is_compiled
from broker import planted_bugs
from cluster.bad_allocator import listening
from cluster.plan import Deed, Fault, Role

__all__ = ["PLANTED", "SECONDS", "Planted"]

SECONDS = 40.0
"""The length of a round with one of them."""
ALL_DISKS = 5
"""Chooses all of one or two directories that are not mounted."""


class Planted(NamedTuple):
    """A bug with the only fault of the round that finds it, and with what is said of that round then."""

    plant: Callable[[pytest.MonkeyPatch], None]
    fault: Fault
    says: str


PLANTED = {
    plant.__name__: Planted(plant, Fault(1.0, deed, role, ALL_DISKS, for_s, both_ways=both_ways), says)
    for plant, deed, role, for_s, both_ways, says in (
        (
            planted_bugs.replicas_are_given_up_whoever_is_there,
            *(Deed.UNMOUNT, Role.ALL, 20.0, True),
            r"in sync: .*\(leader -1, in sync \(\)\)",
        ),
        (
            planted_bugs.old_directories_count_as_current,
            *(Deed.UNMOUNT, Role.LEADER, 6.0, False),
            "lost: .* acknowledged records",
        ),
        (
            planted_bugs.a_copied_registry_counts_as_the_original,
            *(Deed.COPY, Role.CONTROLLER, 15.0, True),
            "lost: .* acknowledged records",
        ),
        (
            planted_bugs.an_old_registry_is_believed,
            *(Deed.OLD_REGISTRY, Role.ALL, 4.0, True),
            "did not refuse an old registry",
        ),
        (
            planted_bugs.a_disk_that_fails_is_told_to_nobody,
            *(Deed.FAIL_DISK, Role.LEADER, SECONDS - 1.0, True),
            "nothing acknowledged for",
        ),
        (
            planted_bugs.a_loop_that_stands_still_keeps_its_roles,
            *(Deed.HANG_DISK, Role.CONTROLLER, SECONDS - 1.0, True),
            "nothing acknowledged for",
        ),
    )
}

if __name__ == "__main__":
    assert not is_compiled(), "what is planted in a compiled module is ignored"
    PLANTED[sys.argv.pop(1)].plant(pytest.MonkeyPatch())
    with listening():
        main()
