"""Serves as a broker with a bug that is planted on purpose: ``planted.py NAME serve …``, from source.

A round with the deeds that are named beside it finds it: otherwise its silence would mean nothing.
"""

from __future__ import annotations

import sys

import pytest

from barnabas.__main__ import main
from broker import planted_bugs

PLANTED = {
    plant.__name__: plant
    for plant in (
        planted_bugs.replicas_are_given_up_whoever_is_there,  # unmount
        planted_bugs.old_directories_count_as_current,  # unmount, old_copy
        planted_bugs.an_old_registry_is_believed,  # old_registry
        planted_bugs.a_disk_that_fails_is_told_to_nobody,  # fail_disk
        planted_bugs.a_loop_that_stands_still_keeps_its_roles,  # hang_disk
    )
}

if __name__ == "__main__":
    PLANTED[sys.argv.pop(1)](pytest.MonkeyPatch())
    main()
