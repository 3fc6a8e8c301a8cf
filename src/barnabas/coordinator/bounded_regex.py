"""Regular expressions of clients, matched in a time that is bounded by the lengths of pattern and text.

Python's own matcher tries alternatives one after the other, so that a pattern of ten characters can hold up the event
loop for hours. Here all alternatives advance together over the text (Thompson's construction). The syntax is Python's,
which for filters of names is the same as Java's. Features without such a construction (back references, look around,
possessive quantifiers) are refused.
"""

import re
from collections.abc import Callable, Sequence
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

from barnabas.errors import InvalidRegularExpression

__all__ = ["Pattern"]

PATTERN_MAX: Final = 1_000
"""Characters of a pattern."""
STATES_MAX: Final = 10_000
"""Characters of a pattern whose counted repetitions are written out."""
STEPS_MAX: Final = 1_000_000
"""The bound on the cached states of one pattern over all names. To compute one takes about a microsecond."""

_FLAGS: Final = re.IGNORECASE | re.DOTALL | re.UNICODE | re.ASCII | re.VERBOSE

Test = Callable[[str], bool]
"""Whether a character fits."""


class _State:
    """A state of the automaton: goes to `out[0]` with a character that passes `test`, or without one to all of
    `out`."""

    __slots__ = ("at", "out", "test")

    def __init__(self, test: Test | None = None, at: Any = None) -> None:
        self.test = test
        self.at = at
        """An anchor that must hold to go on."""
        self.out: list[_State] = []


class _Moment:
    """The set of states after some first characters of a name."""

    __slots__ = ("accepts", "following", "waiting")

    def __init__(self, waiting: list[_State], accepts: bool) -> None:
        self.waiting = waiting
        self.accepts = accepts
        """Whether the name may end here."""
        self.following: dict[str, _Moment] = {}


class Pattern:
    """A pattern that whole names must match. Raises InvalidRegularExpression."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_MAX:
            raise InvalidRegularExpression(f"a pattern of {len(text)} characters, {PATTERN_MAX} may be")
        try:
            parsed = _parser.parse(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise InvalidRegularExpression(f"pattern {text!r}: {error}") from None
        self._states = 0
        self._steps = 0
        self._flags = parsed.state.flags
        if self._flags & ~_FLAGS:
            raise InvalidRegularExpression(f"pattern {text!r} sets flags that are not served")
        self._end = _State()
        start = self._sequence(parsed, self._end)
        self._moments: dict[frozenset[_State], _Moment] = {}
        self._start = self._moment(frozenset((start,)), at_start=True)

    def matches(self, name: str) -> bool:
        """Whether all of `name` fits. Raises InvalidRegularExpression for a pattern that takes too long over all."""
        moment = self._start
        for character in name:
            following = moment.following.get(character)
            if following is None:
                reached = frozenset(
                    state.out[0] for state in moment.waiting if state.test is not None and state.test(character)
                )
                self._count(len(moment.waiting))
                following = self._moments.get(reached) or self._moment(reached)
                moment.following[character] = following
            if not following.waiting and not following.accepts:
                return False
            moment = following
        return moment.accepts

    def _moment(self, states: frozenset[_State], *, at_start: bool = False) -> _Moment:
        waiting = [state for state in self._closure(states, at_start, False) if state.test is not None]
        moment = _Moment(waiting, self._end in self._closure(states, at_start, True))
        if not at_start:
            self._moments[states] = moment
        return moment

    def _closure(self, states: frozenset[_State], at_start: bool, at_end: bool) -> set[_State]:
        """The states reached without a further character."""
        reached: set[_State] = set()
        pending = list(states)
        while pending:
            state = pending.pop()
            if state in reached or (state.at is not None and not (at_start if state.at in _STARTS else at_end)):
                continue
            reached.add(state)
            if state.test is None:
                pending += state.out
        self._count(len(reached))
        return reached

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > STEPS_MAX:
            raise InvalidRegularExpression(f"the pattern takes more than {STEPS_MAX} steps")

    # --- construction, from the end backwards -------------------------------------------------------------------------

    def _state(self, *out: _State, test: Test | None = None, at: Any = None) -> _State:
        self._states += 1
        if self._states > STATES_MAX:
            raise InvalidRegularExpression(f"the pattern's repetitions make more than {STATES_MAX} characters")
        state = _State(test, at)
        state.out += out
        return state

    def _sequence(self, items: Sequence[tuple[Any, Any]], after: _State) -> _State:
        for kind, argument in reversed(list(items)):
            after = self._item(kind, argument, after)
        return after

    def _item(self, kind: Any, argument: Any, after: _State) -> _State:
        if kind in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN):
            return self._state(after, test=self._test(kind, argument))
        if kind is op.BRANCH:
            return self._state(*(self._sequence(branch, after) for branch in argument[1]))
        if kind is op.SUBPATTERN:
            _, add, remove, items = argument
            if add or remove:
                raise InvalidRegularExpression("flags for a part of the pattern are not served")
            return self._sequence(items, after)
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT):
            least, most, items = argument
            return self._repeat(least, most, items, after)
        if kind is op.AT and argument in _ANCHORS:
            return self._state(after, at=argument)
        raise InvalidRegularExpression(f"{str(kind).lower()} in a pattern is not served")

    def _repeat(self, least: int, most: int, items: Sequence[tuple[Any, Any]], after: _State) -> _State:
        if most is op.MAXREPEAT:
            loop = self._state(after)
            loop.out.append(self._sequence(items, loop))
            after = loop
        else:
            end = after
            for _ in range(most - least):
                after = self._state(self._sequence(items, after), end)
        for _ in range(least):
            after = self._sequence(items, after)
        return after

    def _test(self, kind: Any, argument: Any) -> Test:
        if kind is op.ANY:
            return (lambda _: True) if self._flags & re.DOTALL else lambda character: character != "\n"
        if kind is op.IN:
            plain = _set_test(argument, bool(self._flags & re.ASCII))
        else:
            wanted, negated = chr(argument), kind is op.NOT_LITERAL
            plain = lambda character: (character == wanted) is not negated  # noqa: E731
        if not self._flags & re.IGNORECASE:
            return plain
        if kind is op.NOT_LITERAL or (kind is op.IN and argument[0][0] is op.NEGATE):
            return lambda character: plain(character.lower()) and plain(character.upper())
        return lambda character: plain(character.lower()) or plain(character.upper())


_STARTS: Final = (op.AT_BEGINNING, op.AT_BEGINNING_STRING)
_ANCHORS: Final = (*_STARTS, op.AT_END, op.AT_END_STRING)


def _set_test(items: Sequence[tuple[Any, Any]], ascii_only: bool) -> Test:
    negated = items[0][0] is op.NEGATE
    tests = [_member_test(kind, argument, ascii_only) for kind, argument in items if kind is not op.NEGATE]
    return lambda character: any(test(character) for test in tests) is not negated


def _member_test(kind: Any, argument: Any, ascii_only: bool) -> Test:
    if kind is op.LITERAL:
        return lambda character: ord(character) == argument
    if kind is op.RANGE:
        low, high = argument
        return lambda character: low <= ord(character) <= high
    flags = re.ASCII if ascii_only else re.NOFLAG
    category = re.compile(_CATEGORIES[argument], flags)
    return lambda character: category.match(character) is not None


_CATEGORIES: Final = {
    op.CATEGORY_DIGIT: r"\d",
    op.CATEGORY_NOT_DIGIT: r"\D",
    op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w",
    op.CATEGORY_NOT_WORD: r"\W",
}
