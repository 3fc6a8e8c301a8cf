"""A plan is drawn from its seed alone, and keeps to what a cluster promises to survive."""

import random
from itertools import pairwise

import pytest

from cluster.plan import LINKS, ONE_MACHINE, ZOOKEEPER, Deed, Role, draw

OF_ZOOKEEPER = {Deed.KILL, Deed.FREEZE, *LINKS}


def test_the_same_seed_draws_the_same_faults() -> None:
    assert draw(random.Random(7), 60, 6, set(Deed)) == draw(random.Random(7), 60, 6, set(Deed))
    assert draw(random.Random(7), 60, 6, set(Deed)) != draw(random.Random(8), 60, 6, set(Deed))


def test_a_kind_that_is_left_out_leaves_the_other_faults_as_they_are() -> None:
    every = draw(random.Random(9), 60, 6, set(Deed))
    assert draw(random.Random(9), 60, 6, {Deed.KILL}) == [fault for fault in every if fault.deed is Deed.KILL]


def test_faults_come_in_order_within_the_round_and_never_take_all_directories() -> None:
    seen = set()
    for seed in range(800):
        machines = seed >= 400
        faults = draw(random.Random(seed), 60, 6, set(Deed), machines=machines)
        assert all(before.at_s < after.at_s for before, after in pairwise(faults))
        assert all(0 < fault.at_s < fault.at_s + fault.for_s <= 60.5 for fault in faults if fault.for_s)
        assert not any(fault.role is Role.ALL and fault.deed in (Deed.WIPE, Deed.COPY, *LINKS) for fault in faults)
        assert all(fault.deed in OF_ZOOKEEPER for fault in faults if fault.role in ZOOKEEPER)
        seen |= {(machines, fault.deed, fault.role) for fault in faults}
    deeds, roles = set(Deed) - {Deed.OLD_REGISTRY}, set(Role) - {Role.ALL}
    assert seen >= {(True, deed, role) for deed in deeds - ONE_MACHINE for role in roles - ZOOKEEPER}
    assert seen >= {(True, deed, role) for deed in OF_ZOOKEEPER for role in ZOOKEEPER}
    assert seen >= {
        (False, deed, Role.ALL) for deed in (Deed.UNMOUNT, Deed.OLD_COPY, Deed.OLD_REGISTRY, Deed.FAIL_DISK)
    }
    deeds -= {Deed.FLAP, Deed.WORSEN, Deed.SWALLOW}
    assert {each for each in seen if not each[0] and each[2] is not Role.ALL} == {
        (False, deed, role) for deed in deeds for role in roles - ZOOKEEPER
    }


@pytest.mark.parametrize(("machines", "expected"), [(True, {Deed.CUT}), (False, {Deed.FAIL_DISK, Deed.HANG_DISK})])
def test_some_rounds_have_one_fault_to_the_end(machines: bool, expected: set[Deed]) -> None:
    plans = [draw(random.Random(seed), 60, 6, set(Deed), machines=machines) for seed in range(200)]
    alone = [fault for fault, *others in plans if not others]
    assert 20 < len(alone) < 60
    assert {fault.deed for fault in alone} == expected
    assert all(fault.both_ways and not fault.one_peer and fault.for_s > 50 for fault in alone)
    kills = [draw(random.Random(seed), 60, 6, {Deed.KILL}, machines=machines) for seed in range(200)]
    assert all(fault.deed is Deed.KILL for faults in kills for fault in faults)
