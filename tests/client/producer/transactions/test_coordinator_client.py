"""Requests to coordinators: their versions, retries, and a coordinator that moves."""

import pytest

from barnabas.client.offset_messages import GroupMetadata, OffsetAndMetadata
from client.producer.transactions.rig import ADD_OFFSETS, ADD_PARTITIONS, END, OFFSETS, WHERE, Transacting


def test_the_versions_of_requests_fit_the_transaction_version(it: Transacting) -> None:
    it.transactions.begin()
    it.send(b"a")
    it.wait(it.transactions.send_offsets({WHERE: OffsetAndMetadata(7)}, GroupMetadata("g")))
    it.commit()
    versions = {received.api_key: received.version for received in it.cluster.requests}
    if it.cluster.transactions.version >= 2:
        assert versions[0] >= 12
        assert (versions[END], versions[OFFSETS]) == (5, 5)
        assert ADD_PARTITIONS not in versions
        assert ADD_OFFSETS not in versions
    else:
        assert versions[0] == 11
        assert (versions[ADD_PARTITIONS], versions[END], versions[OFFSETS]) == (3, 4, 4)
        assert it.cluster.count(ADD_OFFSETS) == 1
    assert it.cluster.transactions.offsets == {("g", "in", 0): 7}


@pytest.mark.parametrize("code", [14, 15, 16, 51])
@pytest.mark.parametrize("after", [False, True])
def test_what_passes_is_tried_again(it: Transacting, code: int, after: bool) -> None:
    errors = it.cluster.transactions.errors_after if after else it.cluster.transactions.errors
    it.transactions.begin()
    errors.append(code)
    it.send(b"a")
    it.flush()
    errors += [code, code]
    it.wait(it.transactions.send_offsets({WHERE: OffsetAndMetadata(7)}, GroupMetadata("g")))
    errors.append(code)
    it.commit()
    assert it.seen() == [b"a"]
    assert it.cluster.transactions.offsets == {("g", "in", 0): 7}


def test_markers_that_take_their_time_hold_up_nothing_for_good(it: Transacting) -> None:
    it.cluster.transactions.marker_delay = 3
    for value in (b"a", b"b"):
        it.transactions.begin()
        it.send(value)
        it.commit()
    it.cluster.transactions.write_markers(it.at_coordinator)
    assert it.seen() == [b"a", b"b"]
    assert it.cluster.now < 1003


def test_a_coordinator_that_moves_is_found_again() -> None:
    it = Transacting(2, nodes=3)
    it.init()
    for node in (2, 3, 1, 2):
        it.cluster.coordinator = node
        it.transactions.begin()
        it.send(b"%d" % node)
        it.commit()
    assert it.seen() == [b"2", b"3", b"1", b"2"]
