"""The names of files that a cleaning makes."""

import pytest

from barnabas.log.cleaner.file_names import cleaned_path, is_ours, offset_of


def test_a_cleanings_files_have_its_token() -> None:
    path = cleaned_path("/data/t-0", 42, ".timeindex", "0a")
    assert path == "/data/t-0/00000000000000000042.timeindex.0a.cleaned"
    assert is_ours(path.rpartition("/")[2])
    assert not is_ours("00000000000000000042.timeindex.cleaned"), "one of Kafka's"


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("00000000000000000042.log", 42),
        ("00000000000000000042.log.0a.cleaned", 42),
        ("leader-epoch-checkpoint", None),
        ("\u0664\u0662.log", None),
        (".log", None),
    ],
)
def test_offsets_in_names(name: str, offset: int | None) -> None:
    assert offset_of(name) == offset
