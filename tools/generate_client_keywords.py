"""Generates the keyword arguments of the clients as types, from the definitions of the settings.

    python tools/generate_client_keywords.py           prints the module
    python tools/generate_client_keywords.py --write   writes src/barnabas/client/settings/keywords.py

A test holds the module against this script.
"""

import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from barnabas.client.settings.admin import AdminSettings
from barnabas.client.settings.base import ClientSetting
from barnabas.client.settings.common import CommonSettings
from barnabas.client.settings.consumer import ConsumerSettings
from barnabas.client.settings.producer import ProducerSettings
from barnabas.config.definitions import ConfigType, OneOf

MODULE: Final = Path(__file__).resolve().parents[1] / "src/barnabas/client/settings/keywords.py"

HEAD: Final = '''"""The keyword arguments of the clients, for editors and type checkers.

Made by `python tools/generate_client_keywords.py --write`; do not edit.
"""

import ssl
from collections.abc import Callable
from typing import Any, Literal, TypedDict

__all__ = ["AdminKeywords", "CommonKeywords", "ConsumerKeywords", "ProducerKeywords"]
'''

CALLBACKS: Final = """
    on_assigned: Callable[[Any, tuple[TopicPartition, ...]], object] | None
    \"\"\"Called after partitions were assigned and before they are read; see `subscribe`.\"\"\"
    on_revoked: Callable[[Any, tuple[TopicPartition, ...]], object] | None
    \"\"\"Called before partitions are revoked; see `subscribe`.\"\"\"
    on_lost: Callable[[Any, tuple[TopicPartition, ...]], object] | None
    \"\"\"Called when other members may have the partitions already; see `subscribe`.\"\"\"
"""

OBJECTS: Final = {
    "acks": 'Literal["all", 0, 1, -1] | str',
    "key.serializer": "Callable[[Any], bytes | None]",
    "value.serializer": "Callable[[Any], bytes | None]",
    "partitioner.class": 'Literal["round_robin"] | Callable[[str, bytes | None, bytes | None, int], int]',
    "sasl.oauthbearer.token.provider": "Callable[[], str]",
    "ssl.context": "ssl.SSLContext",
    "partition.assignment.strategy": "str | list[Any] | tuple[Any, ...]",
    "interceptor.classes": "list[Any] | tuple[Any, ...]",
}
"""Types that the definitions lack."""

TYPED_BY_THE_CONSUMER: Final = {"key.deserializer", "value.deserializer"}
"""Parameters of its constructor, which tell the types of its records."""


def type_of(setting: ClientSetting) -> str:
    known = OBJECTS.get(setting.name)
    if known is not None:
        return known
    match setting.type:
        case ConfigType.BOOLEAN:
            return "bool"
        case ConfigType.INT | ConfigType.LONG | ConfigType.SHORT:
            return "int"
        case ConfigType.DOUBLE:
            return "float"
        case ConfigType.LIST:
            return "str | list[str] | tuple[str, ...]"
        case ConfigType.STRING if isinstance(setting.rule, OneOf):
            choices = ", ".join(f'"{choice}"' for choice in setting.rule.choices)
            return f"Literal[{choices}] | str"  # editors offer the choices, and any text may be computed
        case ConfigType.STRING | ConfigType.PASSWORD:
            return "str"
    raise ValueError(f"{setting.name} is a {setting.type.name}: name its type in OBJECTS")


def fields(settings: Iterable[ClientSetting]) -> Iterator[str]:
    for setting in settings:
        if setting.name not in TYPED_BY_THE_CONSUMER:
            yield f"    {setting.attribute}: {type_of(setting)} | None"
            lines = textwrap.wrap(f'"""{setting.doc}"""', 116)
            yield "\n".join(f"    {line}" for line in lines)


def keywords(name: str, base: str, doc: str, settings: Iterable[ClientSetting]) -> str:
    return "\n".join((f"\n\nclass {name}({base}, total=False):", f'    """{doc}"""\n', *fields(settings))) + "\n"


def render() -> str:
    """The whole module."""
    head = HEAD.replace("TypedDict\n", "TypedDict\n\nfrom barnabas.types import TopicPartition\n", 1)
    return (
        head
        + keywords(
            "CommonKeywords",
            "TypedDict",
            "The keyword arguments of every client. None stands for the default.",
            CommonSettings.own,
        )
        + keywords("AdminKeywords", "CommonKeywords", "The keyword arguments of an admin client.", AdminSettings.own)
        + keywords("ProducerKeywords", "CommonKeywords", "The keyword arguments of a producer.", ProducerSettings.own)
        + keywords(
            "ConsumerKeywords",
            "CommonKeywords",
            "The keyword arguments of a consumer, except for its deserializers.",
            ConsumerSettings.own,
        )
        + CALLBACKS.removeprefix("\n")
    )


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        MODULE.write_text(render())
    else:
        sys.stdout.write(render())
