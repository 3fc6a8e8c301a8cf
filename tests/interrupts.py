"""A KeyboardInterrupt wherever CPython could raise one: at the beginning of a function, after a call of one in C, and
where a loop goes back. Between other steps, and when a Python function has returned, no signal is looked at."""

import dis
import inspect
import signal
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final, TypeVar

__all__ = ["interrupted_at", "signalled_at"]

T = TypeVar("T")

CALLS: Final = {dis.opmap[name] for name in ("CALL", "CALL_FUNCTION_EX") if name in dis.opmap}
BACK: Final = {code for name, code in dis.opmap.items() if name.startswith("JUMP_BACKWARD")}


class _Interrupter:
    """Counts the places that a call comes to, and interrupts it at one of them."""

    def __init__(
        self, place: int, files: tuple[str, ...], shielded: tuple[CodeType, ...], strike: Callable[[], None]
    ) -> None:
        self.left = place
        self.strike = strike
        self.files = files
        self.shielded = shielded
        self.last: dict[int, int] = {}
        """The step that a frame took last, by its identity: a frame kept would keep what it has to end."""

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        code: CodeType = frame.f_code
        if event == "call" and not code.co_flags & inspect.CO_GENERATOR and code.co_name != "__init__":
            self.last.pop(id(frame.f_back), None)  # it was called without C in between
        if not code.co_filename.endswith(self.files):
            return None
        if event == "call":
            if self.is_shielded(frame):
                return None
            frame.f_trace_lines = False
            frame.f_trace_opcodes = True
            self.last.pop(id(frame), None)
            self.come_by()
        elif event == "opcode":
            step = code.co_code[frame.f_lasti]
            before = self.last.get(id(frame))
            self.last[id(frame)] = step
            if before in CALLS or step in BACK:
                self.come_by()
        return self.trace

    def is_shielded(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code in self.shielded:
                return True
            frame = frame.f_back
        return False

    def come_by(self) -> None:
        if self.left == 0:
            self.left = -1
            self.strike()
        else:
            self.left -= 1


def _raise() -> None:
    raise KeyboardInterrupt


def interrupted_at(
    place: int, files: tuple[str, ...], call: Callable[[], T], *, shielded: tuple[CodeType, ...] = ()
) -> tuple[bool, T | None]:
    """Call it with a KeyboardInterrupt at that place in files whose names end so, but not within the shielded
    functions: whether there was one, and what the call gave if it went through."""
    return _struck_at(_Interrupter(place, files, shielded, _raise), call)


def signalled_at(place: int, files: tuple[str, ...], call: Callable[[], T]) -> tuple[bool, T | None]:
    """As `interrupted_at`, by a signal; its handler may put off what it does about that."""
    return _struck_at(_Interrupter(place, files, (), lambda: signal.raise_signal(signal.SIGINT)), call)


def _struck_at(interrupter: _Interrupter, call: Callable[[], T]) -> tuple[bool, T | None]:
    before = sys.gettrace()
    sys.settrace(interrupter.trace)
    try:
        result = call()
    except KeyboardInterrupt:
        return True, None
    finally:
        sys.settrace(before)
    return interrupter.left < 0, result
