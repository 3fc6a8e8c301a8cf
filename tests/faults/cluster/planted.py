"""Serves as a broker with a bug that is planted on purpose: ``planted.py NAME serve …``, from source.

A round whose only fault is that beside it finds it: otherwise its silence would mean nothing.
"""

from __future__ import annotations

import sys

import pytest

from barnabas.__main__ import main
from broker import planted_bugs
from cluster.plan import Deed, Fault, Role

__all__ = ["PLANTED", "SECONDS"]

SECONDS = 40.0
"""The length of a round with one of them."""
PLANTED = {
    plant.__name__: (plant, Fault(1.0, deed, role, 5, for_s, both_ways=both_ways))  # 5: all disks of one or two
    for plant, deed, role, for_s, both_ways in (
        (planted_bugs.replicas_are_given_up_whoever_is_there, Deed.UNMOUNT, Role.ALL, 20.0, True),
        (planted_bugs.old_directories_count_as_current, Deed.UNMOUNT, Role.LEADER, 6.0, False),
        (planted_bugs.a_copied_registry_counts_as_the_original, Deed.COPY, Role.CONTROLLER, 15.0, True),
        (planted_bugs.an_old_registry_is_believed, Deed.OLD_REGISTRY, Role.ALL, 4.0, True),
        (planted_bugs.a_disk_that_fails_is_told_to_nobody, Deed.FAIL_DISK, Role.LEADER, SECONDS - 1.0, True),
        (planted_bugs.a_loop_that_stands_still_keeps_its_roles, Deed.HANG_DISK, Role.CONTROLLER, SECONDS - 1.0, True),
    )
}

if __name__ == "__main__":
    PLANTED[sys.argv.pop(1)][0](pytest.MonkeyPatch())
    main()
