"""`barnabas dump-log`: prints the files of a log directory, and checks them."""

import json as json_module
import os
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final

from barnabas.cli.dump.index_files import dump_offset_index, dump_time_index
from barnabas.cli.dump.internal_topics import decode_offsets_record, decode_transaction_record
from barnabas.cli.dump.items import Item
from barnabas.cli.dump.log_file import LogScan
from barnabas.cli.dump.state_files import (
    OFFSET_CHECKPOINTS,
    dump_epochs,
    dump_offsets,
    dump_partition_metadata,
    dump_properties,
    dump_snapshot,
    dump_transaction_index,
)
from barnabas.cli.framework.app import App, Argument, Option
from barnabas.cli.framework.output import CommandFailed, time_text
from barnabas.errors import UsageError
from barnabas.printable import printable, printable_json

Decoder = Callable[[bytes | None, bytes | None], dict[str, Any]]

app = App("Print and check the files of a log directory.")

SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
NAMES: Final = (*OFFSET_CHECKPOINTS, "leader-epoch-checkpoint", "partition.metadata", "meta.properties")
DECODERS: Final[dict[str, Decoder]] = {
    "__consumer_offsets-": decode_offsets_record,
    "__transaction_state-": decode_transaction_record,
}
"""By the beginning of the name of a partition's directory."""
SHOWN_BYTES: Final = 200


@app.command("", example="barnabas dump-log data/orders-0 --deep\nbarnabas dump-log data --check")
def dump_log(
    paths: Annotated[
        list[str], Argument("PATH", "Files, partition directories, or a whole data directory.", takes_bytes=True)
    ],
    deep: Annotated[bool, Option("-d", help="Also print the records in the batches.")] = False,
    offsets: Annotated[
        bool, Option(help="Decode records of __consumer_offsets (by itself in its directories); deep.")
    ] = False,
    transactions: Annotated[bool, Option(help="Decode records of __transaction_state, likewise.")] = False,
    check_only: Annotated[bool, Option("--check", "-c", help="Print only problems and the summary.")] = False,
    json: Annotated[bool, Option(help="One JSON object a line, of type file, batch, record, ...")] = False,
) -> int:
    """Print segments (v0, v1 and v2, wrapper messages too), indexes, snapshots and checkpoints, and check them.

    Checksums, lengths, the order of offsets, and that indexes fit their segment are always checked. Exit code 1 if
    something is wrong; each problem comes with the position in its file.
    """
    files = [file for path in paths for file in _files(path)]
    scans: dict[str, LogScan] = {}
    problems = batches = records = 0
    for path in files:
        chosen = decode_offsets_record if offsets else decode_transaction_record if transactions else None
        out = _Out(json, check_only, chosen or _decoder_of(path))
        out.put({"type": "file", "file": path, "size": os.path.getsize(path)})
        for item in _items(path, deep or offsets or transactions, scans):
            out.put(item)
            problems += item["type"] == "problem"
            batches += item["type"] == "batch"
            records += item.get("count", 0) if item["type"] == "batch" else 0
    summary = {"type": "summary", "files": len(files), "batches": batches, "records": records, "problems": problems}
    if json:
        print(json_module.dumps(summary))
    else:
        print(f"{len(files)} files, {batches} batches, {records} records, {problems or 'no'} problems")
    if problems and not json:
        raise CommandFailed(f"{problems} problem{'s' if problems > 1 else ''} found; the lines with !! say where")
    return 1 if problems else 0


def _decoder_of(path: str) -> Decoder | None:
    directory = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return next((decoder for prefix, decoder in DECODERS.items() if directory.startswith(prefix)), None)


def _files(path: str) -> list[str]:
    """Returns the file itself, or the known files in a directory and below it, segments before their indexes."""
    if not os.path.exists(path):
        raise UsageError(f"{path} does not exist; give a file or directory of a broker's data directory")
    if not os.path.isdir(path):
        if not _is_known(os.path.basename(path)):
            known = ", ".join((*SUFFIXES, *NAMES))
            raise UsageError(f"{path} is of no known kind; known are {known}")
        return [path]
    found = []
    for directory, directories, names in os.walk(path):
        directories.sort()
        ours = sorted(filter(_is_known, names), key=_file_order)
        found += [os.path.join(directory, name) for name in ours]
    if not found:
        raise UsageError(f"{path} holds no files of a log; give a partition directory such as flights-0")
    return found


def _is_known(name: str) -> bool:
    return name in NAMES or name.removesuffix(".deleted").endswith(SUFFIXES)


def _file_order(name: str) -> tuple[str, int]:
    stem, suffix = os.path.splitext(name.removesuffix(".deleted"))
    return (stem, SUFFIXES.index(suffix)) if suffix in SUFFIXES else (name, 0)


def _items(path: str, deep: bool, scans: dict[str, LogScan]) -> Iterator[Item]:
    name = os.path.basename(path).removesuffix(".deleted")
    if name.endswith(".log"):
        scans.clear()  # indexes follow their segment, so one scan is enough
        scan = scans[_stem(path)] = LogScan(path, deep=deep)
        return scan.items()
    if name.endswith((".index", ".timeindex")):
        dump = dump_offset_index if name.endswith(".index") else dump_time_index
        return dump(path, _scan_beside(path, scans))
    if name.endswith(".txnindex"):
        return dump_transaction_index(path)
    if name.endswith(".snapshot"):
        return dump_snapshot(path)
    if name == "leader-epoch-checkpoint":
        return dump_epochs(path)
    if name == "partition.metadata":
        return dump_partition_metadata(path)
    return dump_properties(path) if name == "meta.properties" else dump_offsets(path)


def _stem(path: str) -> str:
    return os.path.splitext(path.removesuffix(".deleted"))[0]


def _scan_beside(path: str, scans: dict[str, LogScan]) -> LogScan | None:
    """Returns the scan of an index's segment, made now if there is none; None without a segment."""
    stem = _stem(path)
    if stem not in scans:
        log = stem + ".log" + (".deleted" if path.endswith(".deleted") else "")
        if not os.path.exists(log):
            return None
        scan = scans[stem] = LogScan(log)
        for _ in scan.items():
            pass
    return scans[stem]


class _Out:
    """Prints items as lines, or as JSON lines."""

    def __init__(self, as_json: bool, problems_only: bool, decode: Decoder | None) -> None:
        self._json = as_json
        self._problems_only = problems_only
        self._decode = decode

    def put(self, item: Item) -> None:
        if self._problems_only and item["type"] != "problem":
            return
        if item["type"] == "record" and self._decode is not None and "marker" not in item:
            item = item | {"decoded": self._decode(item["key"], item["value"])}
        if self._json:
            sys.stdout.write(printable_json(json_module.dumps(_printable(item), ensure_ascii=False)) + "\n")
        else:
            sys.stdout.write(printable(_line(item)) + "\n")


def _printable(value: Any) -> Any:
    """Returns the value for JSON, with bytes as text, or as base64 where they are no text."""
    from barnabas.cli.records.formats import text_or_base64

    if isinstance(value, bytes):
        return text_or_base64(value)
    if isinstance(value, dict):
        return {key: _printable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(entry) for entry in value]
    return value


def _line(item: Item) -> str:
    kind = item["type"]
    if kind == "file":
        return f"== {printable(item['file'])} ({item['size']} bytes)"
    if kind == "problem":
        return f"!! {printable(item['file'])} at byte {item['position']}: {item['message']}"
    if kind == "batch":
        return _batch_line(item)
    if kind == "record":
        return _record_line(item)
    return "   " + " ".join(
        f"{name}={_value(name, value)}" for name, value in item.items() if name not in ("type", "file")
    )


def _batch_line(item: Item) -> str:
    parts = [
        f"at {item['position']}: offsets {item['base_offset']} to {item['last_offset']}, {item['count']} records",
        f"v{item['magic']} {item['codec']} {item['size']} bytes, crc {item['crc']}",
        f"{item['timestamp_type']} {time_text(item['max_timestamp'])}",
    ]
    if "leader_epoch" in item:
        parts.append(f"epoch {item['leader_epoch']}")
    if "producer_id" in item:
        sequences = f"{item['base_sequence']} to {item['last_sequence']}"
        parts.append(f"producer {item['producer_id']}/{item['producer_epoch']} sequences {sequences}")
    parts += [name for name in ("transactional", "control") if item.get(name)]
    if "delete_horizon" in item:
        parts.append(f"delete horizon {time_text(item['delete_horizon'])}")
    return "   " + ", ".join(parts)


def _record_line(item: Item) -> str:
    head = f"     | offset {item['offset']} {time_text(item['timestamp'])} "
    if "marker" in item:
        return head + f"marker {item['marker']}"
    if "decoded" in item:
        return head + " ".join(f"{name}={value}" for name, value in item["decoded"].items())
    text = head + f"key={_shown(item['key'])} value={_shown(item['value'])}"
    if item["headers"]:
        text += " headers=" + ",".join(f"{name}={_shown(value)}" for name, value in item["headers"])
    return text


def _value(name: str, value: Any) -> str:
    return time_text(value) if name == "timestamp" and isinstance(value, int) else str(value)


def _shown(data: bytes | None) -> str:
    """Returns the text of a key or value on one line of bounded length."""
    if data is None:
        return "null"
    more = f"... ({len(data)} bytes)" if len(data) > SHOWN_BYTES else ""
    try:
        text = data[:SHOWN_BYTES].decode("utf-8", "strict" if not more else "ignore")
    except UnicodeDecodeError:
        return "0x" + data[:SHOWN_BYTES].hex() + more
    return (text if text.isprintable() else repr(text)[1:-1]) + more
