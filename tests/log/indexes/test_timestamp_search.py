"""Records are found by their timestamps."""

from dataclasses import replace

import pytest

from barnabas.errors import InvalidRecord
from barnabas.records.record import Record


class TestTimestamps:
    def test_the_first_record_at_or_after_is_found_inside_batches(self, rig) -> None:
        log = rig.log(index_interval_bytes=0)
        for base, compression in ((0, "none"), (10, "gzip"), (20, "zstd")):
            records = [Record(0, 1000 + base + step, b"k", b"v") for step in (3, 1, 2)]
            log.append_as_leader(rig.batch_of(records, compression=compression), 6)
        assert tuple(log.offset_for_timestamp(0)) == (1003, 0, 6)
        assert tuple(log.offset_for_timestamp(1004)) == (1013, 3, 6)
        assert tuple(log.offset_for_timestamp(1022)) == (1023, 6, 6)
        assert log.offset_for_timestamp(1024) is None
        assert tuple(log.max_timestamp()) == (1023, 6, 6)

    def test_a_search_ends_at_a_record_that_is_larger_than_the_topic_allows_now(self, rig) -> None:
        log = rig.log()
        for base, compression in ((0, "none"), (10, "gzip")):
            records = [Record(0, 1000 + base + step, b"k", b"v" * size) for step, size in ((1, 1), (2, 1000), (3, 1))]
            log.append_as_leader(rig.batch_of(records, compression=compression), 6)
        whole = log.config
        log.config = replace(whole, max_decompressed_message_bytes=999)
        assert log.offset_for_timestamp(1003).offset == 2, "an uncompressed one has another limit"
        assert log.offset_for_timestamp(1011).offset == 3, "what is behind the record does not matter"
        for search in (
            lambda: log.offset_for_timestamp(1012),
            lambda: log.offset_for_timestamp(1013),
            log.max_timestamp,
        ):
            with pytest.raises(InvalidRecord, match=r"record 1 has .* max\.decompressed\.message\.bytes is 999"):
                search()
        log.config = whole
        assert log.offset_for_timestamp(1013).offset == log.max_timestamp().offset == 5

    def test_what_was_deleted_is_not_found(self, rig) -> None:
        log = rig.log()
        rig.append(log, 5)
        log.delete_records(3)
        assert log.offset_for_timestamp(0).offset == 3

    def test_an_empty_log_has_no_time(self, rig) -> None:
        log = rig.log()
        assert log.max_timestamp() is None
        assert log.offset_for_timestamp(0) is None
