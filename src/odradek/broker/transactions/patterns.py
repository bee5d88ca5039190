r"""Patterns of transactional ids, matched in a time that grows with pattern and id alone.

Python's own expressions may need exponential time, which a client could use to occupy the broker.
So a pattern becomes a machine whose states are followed all at once, as in RE2, whose syntax Kafka
has: characters, `.`, `[a-z]`, `[^a-z]`, `\d \w \s` and their opposites, `( )`, `(?: )`, `|`,
`* + ? {m,n}`, also with a `?` after them, which makes no difference here. An id has to match as a
whole; `^` and `$` stand at the ends, where they change nothing. Anything else is an error.

Example: `a(b|c)*` becomes ``1 ─a─► 2``, ``2 ─b─► 2``, ``2 ─c─► 2``, accepted in 2.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Final, TypeAlias

from odradek.errors import OdradekError

__all__ = ["Pattern", "PatternError", "compile_pattern"]

_MAX_CHARACTERS: Final = 1_000
_MAX_STATES: Final = 2_000
_MAX_DEPTH: Final = 50  # Of groups.
_MAX_REPEATS: Final = 1_000
_STATES_PER_STEP: Final = 1_000

_Test: TypeAlias = Callable[[str], bool]
_CLASSES: Final[dict[str, _Test]] = {
    "d": lambda c: c.isascii() and c.isdigit(),
    "w": lambda c: c.isascii() and (c.isalnum() or c == "_"),
    "s": lambda c: c in " \t\n\r\f",
    "D": lambda c: not (c.isascii() and c.isdigit()),
    "W": lambda c: not (c.isascii() and (c.isalnum() or c == "_")),
    "S": lambda c: c not in " \t\n\r\f",
}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


class PatternError(OdradekError):
    """A pattern that is malformed, too large, or of a kind that cannot be matched quickly."""


class Pattern:
    """A compiled pattern.

    Args:
        tests: Of each state, the test of a character, or None for a state without one.
        targets: Of each state, the states after it.
        last: The accepting state.
    """

    __slots__ = ("_last", "_targets", "_tests")

    def __init__(self, tests: list[_Test | None], targets: list[list[int]], last: int) -> None:
        self._tests = tests
        self._targets = targets
        self._last = last

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        steps = self.steps(text)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bool(end.value)

    def steps(self, text: str) -> Generator[None, None, bool]:
        """As `matches`, in steps of less than a millisecond."""
        states = self._reach([0])
        work = 0
        for character in text:
            if not states:
                return False
            work += len(states)
            if work > _STATES_PER_STEP:
                yield
                work = 0
            states = self._reach(
                target
                for state in states
                if (test := self._tests[state]) is not None and test(character)
                for target in self._targets[state]
            )
        return self._last in states

    def _reach(self, starts: Iterable[int]) -> set[int]:
        """The states reached without a character."""
        reached: set[int] = set()
        stack = list(starts)
        while stack:
            state = stack.pop()
            if state not in reached:
                reached.add(state)
                if self._tests[state] is None:
                    stack += self._targets[state]
        return reached


def compile_pattern(text: str) -> Pattern:
    """Compiles a pattern.

    Raises:
        PatternError: It cannot be used.
    """
    if len(text) > _MAX_CHARACTERS:
        raise PatternError(f"expected {_MAX_CHARACTERS} characters at most, found {len(text)}")
    return _Compiler(text).compile()


class _Compiler:
    """Reads a pattern from left to right and makes states.

    Each part of a pattern has a first and a last state; the last has no test.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0
        self._tests: list[_Test | None] = []
        self._targets: list[list[int]] = []

    def compile(self) -> Pattern:
        self._state()  # The first one.
        first, last = self._alternatives()
        if self._position < len(self._text):
            raise self._error("a parenthesis that was not opened")
        self._targets[0].append(first)
        return Pattern(self._tests, self._targets, last)

    def _error(self, what: str) -> PatternError:
        return PatternError(f"{what} at position {self._position} of the pattern")

    def _state(self, test: _Test | None = None) -> int:
        if len(self._tests) >= _MAX_STATES:
            raise PatternError(f"the pattern needs more than {_MAX_STATES} states")
        self._tests.append(test)
        self._targets.append([])
        return len(self._tests) - 1

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise self._error("an unexpected end")
        self._position += 1
        return character

    def _alternatives(self) -> tuple[int, int]:
        first, last = self._state(), self._state()
        while True:
            start, end = self._sequence()
            self._targets[first].append(start)
            self._targets[end].append(last)
            if self._peek() != "|":
                return first, last
            self._position += 1

    def _sequence(self) -> tuple[int, int]:
        first = last = self._state()
        while self._peek() not in ("", "|", ")"):
            begin = self._position
            start, end = self._repeated(begin)
            self._targets[last].append(start)
            last = end
        return first, last

    def _repeated(self, begin: int) -> tuple[int, int]:
        start, end = self._atom()
        after = self._position
        least, most = self._counts()
        if (least, most) == (1, 1):
            return start, end
        if self._peek() == "?":
            self._position += 1
        if self._peek() in ("*", "+", "?"):
            raise self._error("a second repetition")
        resume = self._position
        first = last = self._state()
        copies = max(least, 1) if most is None else most
        for number in range(copies):
            if number:  # A further copy of the part is made by reading it again.
                self._position = begin
                start, end = self._atom()
                assert self._position == after, "read as the first time"
            joint = self._state()
            if number >= least:
                self._targets[last].append(joint)
            self._targets[last].append(start)
            self._targets[end].append(joint)
            if most is None and number == copies - 1:
                self._targets[joint].append(start)
            last = joint
        self._position = resume
        return first, last

    def _counts(self) -> tuple[int, int | None]:
        character = self._peek()
        if character in ("*", "+", "?") and character:
            self._position += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        if character != "{":
            return 1, 1
        end = self._text.find("}", self._position)
        low, comma, high = self._text[self._position + 1 : end].partition(",")
        if end < 0 or not _is_count(low) or (high and not _is_count(high)):
            raise self._error("a repetition that is not {m}, {m,} or {m,n}")
        self._position = end + 1
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if max(least, most or 0) > _MAX_REPEATS or (most is not None and most < least):
            raise self._error("an impossible number of repetitions")
        return least, most

    def _atom(self) -> tuple[int, int]:
        character = self._next()
        if character == "(":
            return self._group()
        if character in "*+?{":
            raise self._error("a repetition of nothing")
        if character in "^$":
            return self._anchor(character)
        if character == ".":
            return self._one(lambda c: c != "\n")
        if character == "[":
            return self._one(self._bracket())
        if character == "\\":
            return self._one(self._escape())
        return self._one(_is(character))

    def _one(self, test: _Test) -> tuple[int, int]:
        start, end = self._state(test), self._state()
        self._targets[start].append(end)
        return start, end

    def _anchor(self, character: str) -> tuple[int, int]:
        if self._position != (1 if character == "^" else len(self._text)):
            raise self._error(f"a {character} that is not at the end of the pattern")
        state = self._state()
        return state, state

    def _group(self) -> tuple[int, int]:
        if self._peek() == "?":
            self._position += 1
            if self._next() != ":":
                raise self._error("a group of a kind that is not supported")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error("too many groups in each other")
        start, end = self._alternatives()
        if self._next() != ")":
            raise self._error("a parenthesis that is not closed")
        self._depth -= 1
        return start, end

    def _escape(self) -> _Test:
        character = self._next()
        if character in _CLASSES:
            return _CLASSES[character]
        if character.isascii() and character.isalnum() and character not in _ESCAPES:
            raise self._error(f"the unknown escape \\{character}")
        return _is(_ESCAPES.get(character, character))

    def _bracket(self) -> _Test:
        is_negated = self._peek() == "^"
        self._position += is_negated
        tests: list[_Test] = []
        while (character := self._next()) != "]" or not tests:
            if character == "\\":
                escaped = self._peek()
                test = self._escape()
                if escaped in _CLASSES:
                    tests.append(test)
                    continue
                character = _ESCAPES.get(escaped, escaped)
            after = self._text[self._position : self._position + 2]
            if after.startswith("-") and after != "-]":
                self._position += 1
                high = self._next()
                if high == "\\":
                    high = self._next()
                if high < character:
                    raise self._error("a range whose end is before its start")
                tests.append(_between(character, high))
            else:
                tests.append(_is(character))
        if is_negated:
            return lambda c: not any(test(c) for test in tests)
        return lambda c: any(test(c) for test in tests)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4


def _is(expected: str) -> _Test:
    return lambda c: c == expected


def _between(low: str, high: str) -> _Test:
    return lambda c: low <= c <= high
