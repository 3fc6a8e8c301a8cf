"""Each of these bugs, planted on purpose, is found by a round of faults: otherwise its silence means nothing."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.planted import PLANTED, SECONDS
from cluster.rounds import Options, run


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    """The round that shows the bug shows nothing without it."""
    planted, said = PLANTED[name], list[str]()
    options = Options(1, SECONDS, seed=7, dump_every=0, fault=planted.fault)
    run(replace(options, planted=name), tmp_path, said.append)
    assert any(re.search(planted.says, line) for line in said), "\n".join(said)
    assert not any("Traceback" in line for line in said), "\n".join(said)
    said.clear()
    assert not run(options, tmp_path, said.append), "\n".join(said)
