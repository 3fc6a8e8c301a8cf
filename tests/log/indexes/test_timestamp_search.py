"""Records are found by their timestamps."""

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

    def test_what_was_deleted_is_not_found(self, rig) -> None:
        log = rig.log()
        rig.append(log, 5)
        log.delete_records(3)
        assert log.offset_for_timestamp(0).offset == 3

    def test_an_empty_log_has_no_time(self, rig) -> None:
        log = rig.log()
        assert log.max_timestamp() is None
        assert log.offset_for_timestamp(0) is None
