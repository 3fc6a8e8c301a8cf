"""The offsets of a log keep their order."""

import pytest

from barnabas.log.log_offsets import LogOffsets


class TestMarks:
    @pytest.mark.parametrize(
        "marks",
        [(1, 0, 0, 0), (0, 2, 1, 2), (0, 0, 3, 2), (-1, 0, 0, 0)],
        ids=["start", "stable", "watermark", "negative"],
    )
    def test_their_order_is_asserted(self, marks: tuple[int, int, int, int]) -> None:
        with pytest.raises(AssertionError):
            LogOffsets(*marks).check()

    def test_moving_back_is_asserted(self) -> None:
        offsets = LogOffsets(0, 5, 5, 5)
        with pytest.raises(AssertionError, match="moves back"):
            offsets.advance_log_end(4)
        with pytest.raises(AssertionError):
            offsets.advance_high_watermark(6, 5)
