"""The files of a cleaned segment: nothing is lost on the way to them, and they do not replace anybody's."""

import os
from pathlib import Path

import pytest

from barnabas.log.cleaner.cleaned_segment import CleanedSegment
from barnabas.log.cleaner.file_names import cleaned_path
from log.cleaner.cleaner_rig import CleanerRig


@pytest.mark.usefixtures("kernels")
def test_the_time_of_change_is_that_of_the_newest_source(rig: CleanerRig) -> None:
    rig.put(("a", "1"))
    rig.roll()
    rig.put(("a", "2"))
    rig.roll()
    os.utime(rig.log.segments[0].path(".log"), (1000, 1000))
    os.utime(rig.log.segments[1].path(".log"), (2000, 2000))
    rig.clean()
    assert os.stat(rig.log.segments[0].path(".log")).st_mtime == 2000


@pytest.mark.parametrize("chunk", [None, 7])
@pytest.mark.parametrize("count", [0, 3, 1024, 3000])
def test_any_number_of_parts_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, chunk: int | None
) -> None:
    if chunk is not None:  # the system may take less than it is given
        write = os.write
        monkeypatch.setattr(os, "writev", lambda fd, parts: write(fd, b"".join(parts)[:chunk]))
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[: chunk * 100])))
    sizes: list[int] = []
    segment = CleanedSegment(str(tmp_path), 42, "0a", sizes.append)
    parts = [b"%d," % number for number in range(count)]
    segment.write(parts)
    segment.write([b"end"])
    segment.close()
    segment.close()
    content = Path(cleaned_path(str(tmp_path), 42, ".log", "0a")).read_bytes()
    assert content == b"".join(parts) + b"end"
    assert segment.size == len(content) == sum(sizes)


def test_a_source_is_copied_up_to_where_it_was_clean(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 10_000)
    segment = CleanedSegment(str(tmp_path), 42, "0a", lambda size: None)
    segment.copy_from(str(source), 2_000_001)
    assert Path(cleaned_path(str(tmp_path), 42, ".log", "0a")).read_bytes() == source.read_bytes()[:2_000_001]
    with pytest.raises(OSError, match="ends at byte 2560000, 2560001 were there"):
        segment.copy_from(str(source), 2_560_001)
    segment.close()


def test_no_file_of_another_cleaning_is_written_over(tmp_path: Path) -> None:
    CleanedSegment(str(tmp_path), 42, "0a", lambda size: None).close()
    with pytest.raises(FileExistsError):
        CleanedSegment(str(tmp_path), 42, "0a", lambda size: None)
    CleanedSegment(str(tmp_path), 42, "0b", lambda size: None).close()
    assert len(list(tmp_path.iterdir())) == 2
