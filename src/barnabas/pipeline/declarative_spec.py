"""A declarative pipeline's directory, as `spark-pipelines` has it: a spec file, transformations, and below the storage
root a checkpoint for each flow: `_checkpoints/[catalog/database/]dataset/flow/N`, a new N with each full refresh."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from barnabas.errors import UsageError
from barnabas.pipeline.project import SETTINGS_FILE, SPEC_FILE, check_storage, load_settings

__all__ = [
    "CHECKPOINTS",
    "Spec",
    "find_spec_file",
    "flow_checkpoints",
    "is_of_flow",
    "load_spec",
    "newest",
    "require_pipelines",
    "settings_of",
]

SPEC_FILES: Final = (SPEC_FILE, "spark-pipeline.yaml")
CHECKPOINTS: Final = "_checkpoints"
_MODULES: Final = {
    "yaml": "pyyaml",
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
}


class Spec(NamedTuple):
    """The fields of a spec file that are used here."""

    file: Path
    name: str
    storage: str

    @property
    def checkpoints(self) -> Path:
        """The directory of all checkpoints. Raises UsageError if it is not on this machine, or cannot be relied on."""
        found = urlsplit(self.storage)
        if found.scheme not in ("", "file"):
            raise UsageError(
                f"{self.file}: checkpoints below {self.storage} cannot be looked at from here. `pipeline run` needs a"
                " storage on this machine (file:///...), to notice what is gone or damaged; `spark-pipelines run` does"
                f" without. For status, lag and repair-checkpoint copy {CHECKPOINTS} to this machine, and name that"
                " directory"
            )
        check_storage(self.file, self.storage)
        return Path(found.path if found.scheme else self.storage) / CHECKPOINTS


def find_spec_file(directory: Path) -> Path | None:
    return next((directory / name for name in SPEC_FILES if (directory / name).is_file()), None)


def require_pipelines() -> None:
    """Raises UsageError where a package is missing that declarative pipelines need besides Spark's."""
    missing = [package for module, package in _MODULES.items() if not _is_there(module)]
    if missing:
        raise UsageError(f"declarative pipelines need {', '.join(missing)}: pip install 'barnabas[spark-pipelines]'")


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def load_spec(file: Path) -> Spec:
    """Raises UsageError."""
    try:
        import yaml
    except ImportError:
        raise UsageError(f"{file} is YAML: reading it needs pip install 'barnabas[spark-pipelines]'") from None
    try:
        found: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is no YAML: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{file} must have the fields name, storage and libraries")
    for field in ("name", "storage"):
        if not isinstance(found.get(field), str):
            raise UsageError(f"{file}: {field} must be there, and a text")
    return Spec(file, found["name"], found["storage"])


def settings_of(spec: Spec) -> dict[str, Any]:
    """Returns the settings of pipeline.toml, which `spark-pipelines init` does not write. Raises UsageError."""
    if (spec.file.parent / SETTINGS_FILE).exists():
        return load_settings(spec.file.parent)
    return {"name": spec.name, "kafka": {}, "spark": {}}


def flow_checkpoints(root: Path) -> list[Path]:
    """Returns all checkpoints of each flow, in the order in which they were made."""
    found = {path.parent for path in root.rglob("offsets") if path.parent.name.isdigit() and path.is_dir()}
    kept = (path for path in found if not any(".backup-" in part for part in path.relative_to(root).parts))
    return sorted(kept, key=lambda path: (path.parent, int(path.name)))


def is_of_flow(path: Path) -> bool:
    """Whether a checkpoint is one of a flow's numbered ones. A query may be named by digits, too."""
    return path.name.isdigit() and CHECKPOINTS in path.absolute().parts


def newest(paths: Iterable[Path]) -> list[Path]:
    """Returns the last checkpoint of each flow."""
    return list({path.parent: path for path in paths}.values())
