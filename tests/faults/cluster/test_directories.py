"""What happens to directories, and that it can be undone."""

from pathlib import Path

import pytest

from cluster.directories import Stock, unmount


@pytest.fixture
def directories(tmp_path: Path) -> list[Path]:
    made = [tmp_path / name for name in ("broker-1", "broker-1-2")]
    for each in made:
        (each / "ledger-0").mkdir(parents=True)
        (each / "log").write_text("old")
    return made


def test_what_was_written_under_a_mount_is_hidden(directories: list[Path]) -> None:
    mount = unmount(directories[:1])
    assert not list(directories[0].iterdir())
    (directories[0] / "log").write_text("written meanwhile")
    mount()
    assert [(each / "log").read_text() for each in directories] == ["old", "old"]


@pytest.mark.parametrize("in_place", [False, True])
def test_a_copy_takes_the_place_of_all_files(directories: list[Path], tmp_path: Path, *, in_place: bool) -> None:
    inodes = [each.stat().st_ino for each in directories]
    stock = Stock(directories, tmp_path / "stock")
    for each in directories:
        (each / "log").write_text("new")
        (each / "later-0").mkdir()
    stock.put_back(in_place=in_place)
    for each, inode in zip(directories, inodes, strict=True):
        assert sorted(entry.name for entry in each.iterdir()) == ["ledger-0", "log"]
        assert (each / "log").read_text() == "old"
        assert (each.stat().st_ino == inode) is in_place


def test_the_newer_directories_come_back(directories: list[Path], tmp_path: Path) -> None:
    stock = Stock(directories, tmp_path / "stock")
    (directories[0] / "log").write_text("new")
    end = stock.put_back_for_a_while()
    assert (directories[0] / "log").read_text() == "old"
    end()
    assert (directories[0] / "log").read_text() == "new"
