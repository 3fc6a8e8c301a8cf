"""The segments of a log in order, and searches over them."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.config.log_config import LogConfig
from barnabas.log.directories.disk import Disk, ResourcePool
from barnabas.log.log_segment import LogSegment
from barnabas.log.log_segments import LogSegments
from log.log_files import contents


class TestRead:
    def test_old_segments_are_found(self, rig, offsets_in) -> None:
        log = rig.log(segment_bytes=400, index_interval_bytes=0)
        for _ in range(40):
            rig.append(log, 2)
        assert len(log.segments) > 5
        for offset in range(80):
            result = log.read(offset, 1, upper_bound=80, min_one_message=True)
            assert offsets_in(result.file_slice.read()) == [offset - offset % 2]


class TestTruncate:
    def test_later_segments_and_epochs_go(self, rig) -> None:
        log = rig.log()
        for epoch in range(4):
            rig.append(log, 2, epoch=epoch)
            log.roll()
        log.truncate_to(3)
        assert log.log_end_offset == 2
        assert [segment.base_offset for segment in log.segments] == [0, 2]
        assert log.leader_epochs.entries == [(0, 0)]
        rig.append(log, epoch=9)
        assert contents(log).count(b"k") == 3


def segment(base_offset: int) -> LogSegment:
    """A segment without files: only its place among the others counts."""
    return LogSegment("/nowhere", base_offset, LogConfig(), disk=Disk(), pool=ResourcePool(4), created_ms=0)


@given(st.data())
def test_segments_are_those_of_a_plain_list_of_base_offsets(data: st.DataObject) -> None:
    bases = [data.draw(st.integers(0, 50))]
    segments = LogSegments([segment(bases[0])])
    for _ in range(data.draw(st.integers(0, 12))):
        change = data.draw(st.sampled_from(["add", "add", "remove_first", "remove_above", "replace", "replace_all"]))
        if change == "add":
            bases.append(bases[-1] + data.draw(st.integers(1, 20)))
            segments.add(segment(bases[-1]))
        elif change == "remove_first":
            count = data.draw(st.integers(0, len(bases) - 1))
            assert [each.base_offset for each in segments.remove_first(count)] == bases[:count]
            del bases[:count]
        elif change == "remove_above":
            offset = data.draw(st.integers(bases[0], bases[-1] + 5))
            assert [s.base_offset for s in segments.remove_above(offset)] == [base for base in bases if base > offset]
            bases = [base for base in bases if base <= offset]
        elif change == "replace" and len(bases) > 1:
            first = data.draw(st.integers(0, len(bases) - 2))
            end = data.draw(st.integers(first + 1, len(bases) - 1))
            segments.replace(segments[first:end], segment(bases[first]))
            del bases[first + 1 : end]
        elif change == "replace_all":
            bases = [data.draw(st.integers(0, 50))]
            segments.replace_all(segment(bases[0]))
        assert [each.base_offset for each in segments] == segments.base_offsets == bases
        assert segments.active is segments[-1]
    offset = data.draw(st.integers(0, bases[-1] + 5))
    within = [base for base in bases if base <= offset][-1:] or bases[:1]
    assert [each.base_offset for each in segments.from_offset(offset)] == bases[bases.index(within[0]) :]


def test_a_run_is_unbroken_and_of_these_very_segments() -> None:
    segments = LogSegments([segment(base) for base in (0, 10, 20, 30)])
    assert segments.contains_run([])
    assert segments.contains_run(segments[1:3])
    assert not segments.contains_run([segments[0], segments[2]])
    assert not segments.contains_run([*segments[2:], segment(40)])
    assert not segments.contains_run([segment(10)]), "of the same name, but another one"
