"""The parser of every command: examples in its help, its own usage and a guess in its errors."""

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

if TYPE_CHECKING:
    # What `add_subparsers` returns has no public name.
    Actions: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

__all__ = ["COLOR_MODES", "CommandParser"]

COLOR_MODES = ("auto", "always", "never")
_REQUIRED = "the following arguments are required"
_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Leaves lines as they are, but wraps a text that is one line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text.strip():
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)  # noqa: SLF001 - base


class CommandParser(argparse.ArgumentParser):
    """The parser of a command or of one of its actions.

    Args:
        examples: Command lines for the end of the help.
        options: As of `argparse.ArgumentParser`.
    """

    def __init__(self, *, examples: Iterable[str] = (), **options: Any) -> None:
        super().__init__(**options)
        self._words: Sequence[str] = ()
        self._anywhere: str | None = None
        self.show_examples(examples)
        self.add_argument(
            "--color",
            choices=COLOR_MODES,
            default=argparse.SUPPRESS,
            metavar="WHEN",
            help="colour on a terminal: auto (unless NO_COLOR is set), always, never",
        )

    def show_examples(self, examples: Iterable[str]) -> None:
        """Ends the help with command lines."""
        lines = list(examples)
        if lines:
            self.formatter_class = _Formatter
            self.epilog = "\n".join(("examples:", *(f"  {line}" for line in lines)))

    def take_anywhere(self, name: str) -> None:
        """Lets a positional argument that takes any number of words have those behind options, too.

        Argparse looks for them once: of ``produce t --key k file`` it would not recognize ``file``.
        """
        self._anywhere = name

    def show_examples_of_actions(self) -> None:
        """Ends the help with an example of each action, unless it has examples of its own."""
        if self.epilog is not None:
            return
        lines = []
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - has no other name
                for parser in action.choices.values():
                    lines += [line.strip() for line in (parser.epilog or "").splitlines()[1:2]]
        self.show_examples(lines)

    def parse_known_args(  # type: ignore[override]  # The overloads differ in `namespace` alone.
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parses all arguments; what is left over is an error of this command, not of the first."""
        self._words = list(sys.argv[1:] if args is None else args)
        found, rest = super().parse_known_args(self._words, namespace)
        if self._anywhere is not None:
            taken = [word for word in rest if not word.startswith("-") or word == "-"]
            setattr(found, self._anywhere, [*getattr(found, self._anywhere), *taken])
            rest = [word for word in rest if word.startswith("-") and word != "-"]
        if rest:
            self.error(self._unknown(rest))
        return found, []

    def error(self, message: str) -> NoReturn:
        """Prints usage and, as the last line, the error; ends with exit code 2."""
        if message.startswith(_REQUIRED):
            # A mistyped option is the reason more often than a forgotten one.
            mistyped = [word for word in self._words if self._is_unknown(word)]
            if mistyped:
                message = self._unknown(mistyped)
        if message in (f"{_REQUIRED}: ACTION", f"{_REQUIRED}: COMMAND"):
            # There is nothing wrong with what was typed: it needs to go on.
            self.print_help(sys.stderr)
            self.exit(2, f"\n{self.prog}: error: {message}\n")
        self.print_usage(sys.stderr)
        self.exit(2, f"`{self.prog} --help` has more\n{self.prog}: error: {message}\n")

    def _unknown(self, words: Sequence[str]) -> str:
        text = f"unrecognized arguments: {' '.join(words)}"
        guesses = [
            guess
            for word in words
            if word.startswith("-") and (guess := _nearest(word, self._option_string_actions))
        ]
        return f"{text}; did you mean {' '.join(guesses)}?" if guesses else text

    def _is_unknown(self, word: str) -> bool:
        name = word.partition("=")[0]
        return (
            name.startswith("-")
            and name not in ("-", "--")
            and not _NEGATIVE_NUMBER.fullmatch(name)
            and not any(known.startswith(name) for known in self._option_string_actions)
            and name[:2] not in self._option_string_actions
        )

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(one) for one in action.choices]
        guess = _nearest(str(value), choices)
        hint = f"did you mean {guess}? " if guess else ""
        raise argparse.ArgumentError(
            action, f"invalid choice: {value!r}; {hint}(choose from {', '.join(choices)})"
        )

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            # Numbers are read by functions whose names mean nothing to users.
            if isinstance(error.__context__, argparse.ArgumentTypeError):
                raise
            raise argparse.ArgumentError(
                action, f"expected a number, found {arg_string!r}"
            ) from None


def _nearest(word: str, known: Iterable[str]) -> str | None:
    # Only errors need it.
    from difflib import get_close_matches

    found = get_close_matches(word.partition("=")[0], list(known), n=1)
    return found[0] if found else None
