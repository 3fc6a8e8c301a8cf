"""The pause before a process that has died is started again."""

from typing import Final

__all__ = ["RestartBackoff"]

_FIRST_S: Final = 0.1
_MAX_S: Final = 10.0
_GOOD_RUN_S: Final = 60.0


class RestartBackoff:
    """Doubles the pause with each death, and begins again after a process that ran for a minute."""

    def __init__(self) -> None:
        self._next_s = _FIRST_S

    def after_run(self, ran_s: float) -> float:
        """Returns the pause in seconds after a process that ran for so long."""
        pause_s = _FIRST_S if ran_s >= _GOOD_RUN_S else self._next_s
        self._next_s = min(2 * pause_s, _MAX_S)
        return pause_s
