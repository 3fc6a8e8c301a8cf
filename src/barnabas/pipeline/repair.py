"""Repairs checkpoints: finds what is wrong with one, and changes its files."""

import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from barnabas import Admin
from barnabas.errors import BarnabasError
from barnabas.pipeline.brokers import broker_view
from barnabas.pipeline.checkpoint import read_checkpoint
from barnabas.pipeline.declarative_spec import is_of_flow
from barnabas.pipeline.diagnosis import Problem, find_problems

__all__ = ["backup_of", "repair", "repair_checkpoint"]


def repair_checkpoint(admin: Admin, path: Path, *, change: bool) -> dict[str, Any]:
    """Finds what is wrong with a checkpoint and repairs it, if `change` and all problems can be repaired. Returns a
    report."""
    checkpoint = read_checkpoint(path)
    view, brokers_error = None, None
    try:
        view = broker_view(admin, checkpoint)
    except BarnabasError as error:
        brokers_error = str(error)
    problems = find_problems(checkpoint, view)
    repairs = change and bool(problems) and all(problem.changes is not None for problem in problems)
    backup = backup_of(path) if repairs else None
    if backup is not None:
        repair(path, problems, backup)
    return {
        "checkpoint": str(path),
        "brokers_error": brokers_error,
        "problems": [
            {"problem": problem.what, "way_out": problem.way_out, "repairable": problem.changes is not None}
            for problem in problems
        ],
        "repaired": repairs,
        "backup": None if backup is None else str(backup),
    }


def backup_of(path: Path) -> Path:
    """Returns the path of a copy, beside the checkpoint; Spark would take one beside a flow's numbered checkpoints for
    the newest of them."""
    kept = path.parent if is_of_flow(path) else path
    return kept.with_name(f"{kept.name}.backup-{time.strftime('%Y%m%d-%H%M%S')}")


def repair(path: Path, problems: Iterable[Problem], backup: Path) -> None:
    """Copies the checkpoint, then makes the problems' changes. Hadoop's checksums of changed files are deleted."""
    shutil.copytree(path, backup)
    changes: dict[Path, str | None] = {}
    for problem in problems:
        changes |= problem.changes or {}
    for file, text in changes.items():
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
        if text is None:
            file.unlink(missing_ok=True)
            continue
        new = file.with_name(f".{file.name}.new")
        new.write_text(text, encoding="utf-8")
        new.replace(file)
