"""The admin client's settings."""

from barnabas.client.settings.base import with_default
from barnabas.client.settings.common import API_TIMEOUT, RETRIES, CommonSettings

__all__ = ["AdminSettings"]


class AdminSettings(CommonSettings):
    """An admin client's settings."""

    client = "admin client"

    default_api_timeout_ms: int = API_TIMEOUT
    retries: int = RETRIES
    connections_max_idle_ms: int = with_default(CommonSettings.connections_max_idle_ms, 300_000)
