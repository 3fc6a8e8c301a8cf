"""Ctrl-C in the middle of a send, where the intake is plain Python: what was taken comes whole, once and in order."""

import pytest

from barnabas.records import bulk_kernel
from client.interrupts import interrupted_at
from simulation.producer import SimulatedProducer

FILES = ("client/producer/record_appender.py", "records/kernel.py", "client/producer/record_accumulator.py")
PLACES_MAX = 1000


@pytest.mark.skipif(bulk_kernel.is_compiled(), reason="test_uncompiled.py runs it on plain Python")
@pytest.mark.parametrize("batch_size", [200, 1 << 16])
def test_an_interrupted_append_leaves_no_half_record(batch_size: int) -> None:
    producing = SimulatedProducer(batch_size=batch_size, linger_ms=50)
    core = producing.core
    taken: list[bytes] = []
    for place in range(PLACES_MAX):
        value = b"%d" % place + b"v" * 90
        before = core.intake.sent

        def append(value: bytes = value) -> object:
            return core.intake.append("t", value, None, 0, 1000, [("name", b"x")], None)

        interrupted, _ = interrupted_at(place, FILES, append)
        assert core.intake.sent - before in (0, 1)
        if core.intake.sent > before:  # it was taken, whatever the caller was told
            taken.append(value)
        if not interrupted:
            break
        assert core.intake.append("t", b"after %d" % place, None, 0, 1000, None, None) is not None
        taken.append(b"after %d" % place)
    else:
        raise AssertionError("it never goes through")
    assert place > 20
    producing.flush()
    assert producing.values() == taken
    assert core.intake.used == 0
