"""What threads sleep on."""

import os
import signal
from pathlib import Path

from barnabas.connection.drivers.waker import Waker


class _OvertakenByAClose:
    """A poller in whose time another thread closes the waker, and the numbers of its pipe become those of files."""

    def __init__(self, waker: Waker, directory: Path) -> None:
        self._waker, self._directory = waker, directory
        self.files: list[int] = []

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        wanted = max(self._waker.pipe)
        self._waker.close()
        while wanted not in self.files:
            self.files.append(os.open(self._directory / "file", os.O_CREAT | os.O_RDWR))
        return []

    def close(self) -> None:
        """It is no real one."""


def test_a_close_may_overtake_a_poll(tmp_path: Path) -> None:
    """Who polls puts back nothing that is not there any more, and leaves no signals to a file of somebody else's."""
    waker = Waker(lambda: None)
    waker.poller.close()
    overtaken = _OvertakenByAClose(waker, tmp_path)
    waker.poller = overtaken  # type: ignore[assignment]
    try:
        assert waker.poll(1) == []
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        for file in overtaken.files:
            os.close(file)
