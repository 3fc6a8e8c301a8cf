"""Frames of JSON between the broker and its cleaner process."""

import pytest

from barnabas.log.cleaner.cleaner_protocol import BrokenFrame, CleanerConfig, CleaningJob, Frames, frame


def test_what_the_worker_says_is_cut_into_messages() -> None:
    messages = [{"event": "mapped", "n": number} for number in range(5)]
    data = b"".join(map(frame, messages))
    for step in (1, 3, 1000):
        frames = Frames(100)
        found = [message for at in range(0, len(data), step) for message in frames.feed(data[at : at + step])]
        assert found == messages


@pytest.mark.parametrize("data", [(101).to_bytes(4, "big"), b"\0\0\0\3abc", b"\0\0\0\1\xff"])
def test_frames_that_are_none(data: bytes) -> None:
    with pytest.raises(BrokenFrame):
        Frames(100).feed(data)


def test_jobs_go_over_the_pipe_unchanged() -> None:
    job = CleaningJob(
        directory="/data/cities-0",
        token="0a",
        segments=((0, 10), (5, 20)),
        first_dirty_offset=3,
        end_offset=9,
        now_ms=1,
        delete_retention_ms=2,
        segment_bytes=3,
        segment_index_bytes=4,
        index_interval_bytes=5,
        kept_offsets=(1, 2),
        marker_epochs=((7, 0),),
        limits=CleanerConfig(dedupe_buffer_size=1),
    )
    (message,) = Frames(10_000).feed(job.pack())
    assert CleaningJob.parse(message) == job
