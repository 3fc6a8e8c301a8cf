"""`barnabas get-offsets`."""

import json

from cli.conftest import Run


def test_offsets_now_and_at_a_time(in_process: Run, topic: str) -> None:
    def offsets(*arguments: str) -> list[tuple[object, ...]]:
        return [tuple(row.values())[1:] for row in json.loads(in_process("get-offsets", *arguments, "--json").stdout)]

    assert offsets(topic) == [(0, 0, 3), (1, 0, 0)]
    assert offsets(f"{topic}:0", "--time", "1970-01-01T00:00:01.5Z") == [(0, 1, 2000)]
    assert offsets(topic, "--time", "now") == [(0, None, None), (1, None, None)]
    assert offsets(f"^{topic[:-1]}", "--time", "earliest")[0][:2] == (0, 0)
    assert offsets(f"{topic}:0", "--time", "max-timestamp") == [(0, 2, 3000)]
    assert in_process("get-offsets", f"{topic}:0").stdout.splitlines()[1].split() == [topic, "0", "0", "3"]
    assert "has partitions 0 to 1, not 2" in in_process("get-offsets", f"{topic}:2").stderr
