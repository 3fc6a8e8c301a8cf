"""Renders the settings for docs/settings.md and for `barnabas serve --help-settings`."""

from collections.abc import Callable, Iterable

from barnabas.config.broker_settings import GROUPS
from barnabas.config.definitions import DynamicMode, Setting
from barnabas.config.topic import TOPIC_CONFIGS

__all__ = ["render_help", "render_markdown", "settings_as_dicts", "settings_table"]

_DYNAMIC = {
    DynamicMode.READ_ONLY: "at start",
    DynamicMode.PER_BROKER: "per broker",
    DynamicMode.CLUSTER_WIDE: "any time",
}

_HEAD = """# Settings

Made by `python -m barnabas.config.docs`; do not edit.

Names and meanings are Kafka's. A broker takes them from `server.properties` (`--config`), from the environment
(`log.segment.bytes` is `BARNABAS_LOG_SEGMENT_BYTES`) and from the command line (`--set log.segment.bytes=...`); later
ones win. A name that is not in these tables is refused, unless some release of Kafka knows it, or it is so far from all
of Kafka's that it must be a plugin's (`cruise.control...`): then it is accepted without effect and named in a warning,
except where the value asks for protection that would not be given. All that is refused is told at once, also without a
start by `barnabas serve --check`. `KAFKA_...` variables, which set something in Kafka's containers, are named in a
warning and not read.

*Set* says when a broker setting can change: at start only, or any time with `barnabas configs` or `kafka-configs`.
"""


def render_markdown() -> str:
    parts = [_HEAD, "## Settings of a broker\n"]
    for title, settings in GROUPS.items():
        parts.append(f"### {title}\n")
        parts.append(settings_table(settings, "Set", lambda setting: _DYNAMIC[setting.dynamic]))
    parts.append("## Settings of a topic\n")
    parts.append("Given when a topic is created or changed later. *From* is the broker setting that counts where the")
    parts.append("topic does not set it.\n")
    parts.append(
        settings_table(TOPIC_CONFIGS, "From", lambda setting: ", ".join(f"`{name}`" for name in setting.synonyms))
    )
    return "\n".join(parts)


def render_help() -> str:
    """Returns all broker settings for a terminal: name, default, rule, then the meaning."""
    lines: list[str] = []
    for title, settings in GROUPS.items():
        lines.append(f"{title}:")
        for setting in settings:
            rule = f"  {setting.rule}" if setting.rule is not None else ""
            lines.append(
                f"  {setting.name} ({setting.type.name.lower()}, default {_default(setting).strip('`')}){rule}"
            )
            lines.append(f"      {setting.doc}")
    return "\n".join(lines)


def settings_as_dicts() -> list[dict[str, str | None]]:
    return [
        {
            "name": setting.name,
            "group": title,
            "type": setting.type.name.lower(),
            "default": setting.format(setting.default),
            "rule": None if setting.rule is None else str(setting.rule),
            "doc": setting.doc,
        }
        for title, settings in GROUPS.items()
        for setting in settings
    ]


def settings_table(settings: Iterable[Setting], column: str, cell: Callable[[Setting], str]) -> str:
    """Returns a Markdown table with a row for each setting, and one column of the caller's choice."""
    rows = [f"| Setting | Type | Default | Values | {column} | Meaning |", "|---|---|---|---|---|---|"]
    for setting in settings:
        rule = f"`{setting.rule}`" if setting.rule is not None else ""
        rows.append(
            f"| `{setting.name}` | {setting.type.name.lower()} | {_default(setting)} | {rule} | {cell(setting)} "
            f"| {setting.doc.replace('|', chr(92) + '|')} |"
        )
    return "\n".join(rows) + "\n"


def _default(setting: Setting) -> str:
    text = setting.format(setting.default)
    return "unset" if text is None else f"`{text}`" if text else "empty"


if __name__ == "__main__":
    import sys

    sys.stdout.write(render_markdown())
