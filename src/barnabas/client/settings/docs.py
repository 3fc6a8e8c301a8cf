"""Renders docs/client-settings.md from the definitions of the settings."""

from collections.abc import Iterable
from typing import Final

from barnabas.client.settings.admin import AdminSettings
from barnabas.client.settings.base import ClientSetting
from barnabas.client.settings.common import CommonSettings
from barnabas.client.settings.consumer import ConsumerSettings
from barnabas.client.settings.foreign import REFUSED, WITHOUT_EFFECT
from barnabas.client.settings.producer import ProducerSettings
from barnabas.config.docs import settings_table

__all__ = ["render_markdown"]

_HEAD: Final = """# Settings of the clients

Made by `python -m barnabas.client.settings.docs`; do not edit.

Names, meanings and defaults are those of Kafka's Java clients, version 4. Producer, consumer and admin client take them
as keyword arguments (`linger_ms=5`) or from a mapping (`{"linger.ms": 5}`), as Python values or as texts. An unknown
name is refused with the nearest valid one.
"""

_EXCEPTIONS: Final = """Some defaults depend on the client: `receive.buffer.bytes` is 32768 for a producer and -1 for a
consumer (Kafka: 65536; see decision 0006), `connections.max.idle.ms` is 300000 for an admin client.
"""

_TLS: Final = [each for each in CommonSettings.own if each.name.startswith(("ssl.", "security."))]
_SASL: Final = [each for each in CommonSettings.own if each.name.startswith("sasl.")]
_SECTIONS: Final[tuple[tuple[str, str, Iterable[ClientSetting]], ...]] = (
    ("Producer", "", ProducerSettings.own),
    ("Consumer", "", ConsumerSettings.own),
    ("Admin client", "", AdminSettings.own),
    ("All clients", _EXCEPTIONS, [each for each in CommonSettings.own if each not in _TLS + _SASL]),
    ("All clients: TLS", "", _TLS),
    ("All clients: SASL", "", _SASL),
)


def render_markdown() -> str:
    """Returns the whole page."""
    parts = [_HEAD]
    for title, text, settings in _SECTIONS:
        parts.append(f"## {title}\n")
        if text:
            parts.append(text)
        parts.append(settings_table(settings, "Importance", lambda setting: setting.importance.name.lower()))
    parts.append("## Settings of Kafka that are not here\n")
    parts.append("Accepted with a warning, without effect:\n")
    parts.append("".join(f"* `{name}`\n" for name in sorted(WITHOUT_EFFECT)))
    parts.append("Refused, because they would not do what they promise:\n")
    parts.append("| Setting | Why, or what instead |\n|---|---|")
    parts.append(
        "".join(
            f"| `{name}{'*' if name.endswith('.') else ''}` | {reason} |\n" for name, reason in sorted(REFUSED.items())
        )
    )
    return "\n".join(parts)


if __name__ == "__main__":
    import sys

    sys.stdout.write(render_markdown())
