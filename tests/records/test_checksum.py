"""CRC-32C, from wherever the package has it."""

from importlib.machinery import PathFinder

import pytest

from barnabas.records import checksum

# RFC 3720, appendix B.4
VECTORS = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (b"", 0),
]


@pytest.mark.parametrize(("data", "crc"), VECTORS, ids=range(len(VECTORS)))
def test_known_checksums(data: bytes, crc: int) -> None:
    assert checksum.crc32c(data) == checksum.crc32c(memoryview(b"x" + data)[1:]) == crc
    assert checksum.crc32c(data[7:], checksum.crc32c(data[:7])) == crc, "in parts"


def test_a_package_without_that_extension_is_imported_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("crc32c")
    find = PathFinder.find_spec
    monkeypatch.setattr(PathFinder, "find_spec", lambda name, *more: None if "._" in name else find(name, *more))
    assert checksum._load() is package.crc32c
