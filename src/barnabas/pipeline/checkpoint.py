"""Reads a query's checkpoint as Spark keeps it: `metadata` has the query's id, `offsets/N` what batch N reads (written
before it runs), and `commits/N` is written when it is done."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.errors import UsageError
from barnabas.pipeline.declarative_spec import (
    CHECKPOINTS,
    find_spec_file,
    flow_checkpoints,
    is_of_flow,
    load_spec,
    newest,
)
from barnabas.spark.source.offsets import StreamOffset, parse_stream_offset
from barnabas.types import TopicPartition

__all__ = ["Batch", "Checkpoint", "Damage", "find_checkpoints", "offsets_text", "read_checkpoint"]

_VERSION: Final = "v1"
_NOTHING: Final = "-"
_FILE_BYTES_MAX: Final = 64 << 20


class Damage(NamedTuple):
    """A file that cannot be read, and why."""

    path: Path
    reason: str


class Batch(NamedTuple):
    """The contents of `offsets/N`."""

    number: int
    head: str
    """The second line: times and settings."""
    lines: tuple[str, ...]
    """A line for each source."""
    sources: tuple[StreamOffset, ...]
    """The offsets in these lines; empty for sources that do not read topics."""

    @property
    def time_ms(self) -> int:
        return int(json.loads(self.head).get("batchTimestampMs", 0))

    @property
    def watermark_ms(self) -> int:
        return int(json.loads(self.head).get("batchWatermarkMs", 0))

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The end offsets of the batch; where several sources read a partition, those of the first one."""
        found: dict[TopicPartition, int] = {}
        for source in self.sources:
            found = {**source.offsets, **found}
        return found

    @property
    def ids(self) -> dict[str, str]:
        return {topic: each for source in self.sources for topic, each in source.ids.items()}


class Checkpoint(NamedTuple):
    """The readable contents of a checkpoint."""

    path: Path
    query_id: str | None
    batches: Mapping[int, Batch]
    commits: frozenset[int]
    damages: tuple[Damage, ...]

    @property
    def name(self) -> str:
        """The query's name. A flow of a declarative pipeline has its checkpoints in numbered directories."""
        return self.path.parent.name if is_of_flow(self.path) else self.path.name

    @property
    def done(self) -> Batch | None:
        """The last committed batch."""
        return max((b for n, b in self.batches.items() if n in self.commits), default=None, key=lambda b: b.number)

    @property
    def last(self) -> Batch | None:
        """The last batch that was begun."""
        return self.batches[max(self.batches)] if self.batches else None


def find_checkpoints(directory: Path) -> list[Path]:
    """Returns the directory itself if it is a checkpoint, or those in its `checkpoints`, or those in it. Raises
    UsageError where there are none."""
    if not directory.is_dir():
        raise UsageError(f"{directory} is no directory; give a pipeline's directory, or that of a checkpoint")
    for candidates in ([directory], sorted((directory / "checkpoints").glob("*")), sorted(directory.glob("*"))):
        found = [path for path in candidates if path.is_dir() and _is_checkpoint(path)]
        if found:
            return found
    spec_file = find_spec_file(directory)
    root = directory if spec_file is None else load_spec(spec_file).checkpoints
    flows = newest(flow_checkpoints(root)) if spec_file or root.name == CHECKPOINTS else []
    if flows:
        return flows
    where = "nor in its directory checkpoints" if spec_file is None else f"nor in {root}"
    raise UsageError(
        f"there is no checkpoint in {directory} ({where}): the pipeline was never run, or"
        " the checkpoint was deleted (a batch write such as backfill has none). A query without its checkpoint begins"
        " anew, as startingOffsets says"
    )


def _is_checkpoint(path: Path) -> bool:
    return ".backup-" not in path.name and (path / "offsets").is_dir()


def read_checkpoint(path: Path) -> Checkpoint:
    damages: list[Damage] = []
    query_id = None
    try:
        query_id = str(json.loads((path / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        damages.append(Damage(path / "metadata", _reason(error)))
    batches = {}
    for number, file in _numbered(path / "offsets"):
        try:
            batches[number] = _batch(number, _text(file))
        except (OSError, ValueError, UsageError, RecursionError) as error:
            damages.append(Damage(file, _reason(error)))
    commits = set()
    for number, file in _numbered(path / "commits"):
        try:
            _lines(_text(file))
            commits.add(number)
        except (OSError, ValueError, RecursionError) as error:
            damages.append(Damage(file, _reason(error)))
    return Checkpoint(path, query_id, batches, frozenset(commits), tuple(damages))


def _numbered(directory: Path) -> Iterator[tuple[int, Path]]:
    if directory.is_dir():
        found = [(int(file.name), file) for file in directory.iterdir() if file.name.isascii() and file.name.isdigit()]
        yield from sorted(found)


def _text(file: Path) -> str:
    if file.stat().st_size > _FILE_BYTES_MAX:
        raise ValueError(f"it is larger than {_FILE_BYTES_MAX} bytes")
    return file.read_text(encoding="utf-8")


def _lines(text: str) -> list[str]:
    version, *lines = text.splitlines() or [""]
    if version != _VERSION:
        raise ValueError(
            "it is empty" if not text.strip("\0 \n") else f"it begins with {version[:20]!r}, not {_VERSION}"
        )
    if not lines:
        raise ValueError("it ends after its first line")
    if not isinstance(json.loads(lines[0]), dict):
        raise ValueError("its second line is no JSON object")
    return lines


def _batch(number: int, text: str) -> Batch:
    head, *sources = _lines(text)
    if not sources:
        raise ValueError("it ends before the offsets")
    return Batch(number, head, tuple(sources), tuple(map(_stream_offset, sources)))


def _stream_offset(line: str) -> StreamOffset:
    """Parses the line of a source. Sources of other kinds give an empty offset; a damaged one of ours raises
    UsageError."""
    document = None if line == _NOTHING else json.loads(line)
    if not isinstance(document, dict):
        return StreamOffset({})
    try:
        return parse_stream_offset(document)
    except UsageError:
        if any(name.startswith("@") for name in document):
            raise
        return StreamOffset({})


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "it is not there"
    if isinstance(error, json.JSONDecodeError):
        return f"it is cut off or damaged (no JSON: {error})"
    return str(error) or type(error).__name__


def offsets_text(batch: Batch, sources: tuple[StreamOffset, ...]) -> str:
    """Returns the contents of `offsets/N` with other offsets for the sources that read topics."""
    lines = [_VERSION, batch.head]
    for line, before, now in zip(batch.lines, batch.sources, sources, strict=True):
        lines.append(line if now == before else json.dumps(now.to_json()))
    return "\n".join(lines)
