"""Writes the code that all loops over records share into these loops.

    python tools/generate_record_walks.py           names the modules whose code differs from the templates
    python tools/generate_record_walks.py --write   rewrites them

A block stands between `# begin NAME ARGUMENT` and `# end NAME`. A call of a function in its place would cost the
compiled loops up to a quarter of their speed, see docs/decisions/0010-record-walks.md.
"""

import re
import sys
import textwrap
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[1] / "src/barnabas/records/compiled"

VARINT: Final = """\
NAME = data[position]
position += 1
if NAME > 127:
    second = data[position]
    if second < 128:
        NAME = NAME & 127 | second << 7
        position += 1
    else:
        NAME, position = _long_varint(data, position, NAME)
"""
"""Reads the zigzag code of a varint. Nearly all have one or two bytes: without calls, plain Python is twice as fast."""

RECORD_START: Final = (
    VARINT.replace("NAME", "length").replace("length =", "length: i64 =", 1).replace("second =", "second: i64 =", 1)
    + """\
end: i64 = position + (length >> 1)
if length & 1 or end > last:
    raise ValueError(f"NAME has length {_signed(length)}, {last - position} bytes are left")
delta: i64 = data[position + 1]  # after the attributes, of which no bit has a meaning yet
if delta < 128:
    delta = delta >> 1 ^ -(delta & 1)
    position += 2
else:
    second = data[position + 2]
    if second < 128:
        delta = (delta & 127 | second << 7) >> 1 ^ -(delta & 1)
        position += 3
    else:
        delta, position = _varlong(data, position + 1)
"""
    + VARINT.replace("NAME", "offset").replace("offset =", "offset: i64 =", 1)
)
"""Reads the length of a record, which must end at `last` at most, its timestamp delta and the code of its offset."""

TEMPLATES: Final = {"varint": VARINT, "record_start": RECORD_START}
BLOCK: Final = re.compile(r"^( *)# begin (\w+) (.+)\n(?:.*\n)*?\1# end \2\n", re.MULTILINE)


def render(source: str) -> str:
    """Returns the source of a module with each block as its template says."""

    def block(match: re.Match[str]) -> str:
        indentation, name, argument = match.groups()
        code = TEMPLATES[name].replace("NAME", argument)
        return textwrap.indent(f"# begin {name} {argument}\n{code}# end {name}\n", indentation)

    return BLOCK.sub(block, source)


def stale_modules() -> list[Path]:
    """Returns the modules whose blocks differ from the templates."""
    return [path for path in FOLDER.glob("*.py") if render(path.read_text()) != path.read_text()]


if __name__ == "__main__":
    for path in stale_modules():
        print(path)
        if "--write" in sys.argv[1:]:
            path.write_text(render(path.read_text()))
