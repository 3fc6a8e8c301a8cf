"""A plan is drawn from its seed alone, and keeps to what a cluster promises to survive."""

import random
from itertools import pairwise

from cluster.plan import Deed, Role, draw


def test_the_same_seed_draws_the_same_faults() -> None:
    assert draw(random.Random(7), 60, 6, set(Deed)) == draw(random.Random(7), 60, 6, set(Deed))
    assert draw(random.Random(7), 60, 6, set(Deed)) != draw(random.Random(8), 60, 6, set(Deed))


def test_a_kind_that_is_left_out_leaves_the_other_faults_as_they_are() -> None:
    every = draw(random.Random(7), 60, 6, set(Deed))
    assert draw(random.Random(7), 60, 6, {Deed.KILL}) == [fault for fault in every if fault.deed is Deed.KILL]


def test_faults_come_in_order_within_the_round_and_never_take_all_directories() -> None:
    seen = set()
    for seed in range(200):
        faults = draw(random.Random(seed), 60, 6, set(Deed))
        assert all(before.at_s < after.at_s for before, after in pairwise(faults))
        assert all(0 < fault.at_s < fault.at_s + fault.for_s <= 60.5 for fault in faults if fault.for_s)
        assert not any(fault.role is Role.ALL and fault.deed in (Deed.WIPE, Deed.CUT) for fault in faults)
        seen |= {(fault.deed, fault.role) for fault in faults}
    assert seen >= {(deed, role) for deed in Deed for role in Role if role is not Role.ALL}
