"""The admin client's settings."""

from typing import ClassVar, Final

from barnabas.client.settings.base import ClientSetting, Row, rows, with_default
from barnabas.client.settings.common import COMMON, RETRIES, SASL, TLS, CommonSettings
from barnabas.config.definitions import ConfigDef, ConfigType, Importance, at_least

__all__ = ["ADMIN", "API_TIMEOUT", "AdminSettings"]

API_TIMEOUT: Final[Row] = (
    "default.api.timeout.ms", ConfigType.INT, 60_000, at_least(0), Importance.MEDIUM,
    "How long a call may take that is not given a timeout of its own.",
)  # fmt: skip

ADMIN: Final[tuple[ClientSetting, ...]] = tuple(rows((API_TIMEOUT, RETRIES)))


class AdminSettings(CommonSettings):
    """An admin client's settings."""

    definitions: ClassVar[ConfigDef] = ConfigDef(
        (*ADMIN, *with_default(COMMON, "connections.max.idle.ms", 300_000), *TLS, *SASL)
    )
    client = "admin client"

    default_api_timeout_ms: int
    retries: int
