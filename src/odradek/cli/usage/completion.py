"""`odradek completion`: scripts that let a shell complete commands, options and values.

The scripts ask this command for what can follow, which reads it off the parsers: nothing in them
names a command or an option, so they stay right when those change.
"""

# ruff: noqa: SLF001 - argparse shows its options and actions in no other way

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from odradek.cli.output import CommandError

__all__ = ["Candidate", "add_arguments", "candidates", "run"]

_DESCRIPTION = """\
Prints a script for the start-up file of a shell. Where nothing of Odradek's can follow, the shell
completes names of files.
"""

_BASH: Final = """\
_odradek() {
    local IFS=$'\\n'
    COMPREPLY=($(odradek completion --candidates "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null |
        cut -f1))
}
complete -o default -F _odradek odradek
"""
_ZSH: Final = """\
#compdef odradek
_odradek() {
    local -a found
    found=("${(@f)$(odradek completion --candidates "${(@)words[2,CURRENT]}" 2>/dev/null |
        sed -e 's/:/\\\\:/g' -e 's/\\t/:/')}")
    if [[ -n "${found[1]}" ]]; then _describe odradek found; else _files; fi
}
compdef _odradek odradek
"""
_FISH: Final = """\
function __odradek
    set -l words (commandline -opc) (commandline -ct)
    set -l found (odradek completion --candidates $words[2..] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c odradek -f -a '(__odradek)'
"""
_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


class Candidate(NamedTuple):
    """A word that can follow."""

    word: str
    summary: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    parser.epilog = (
        "examples:\n"
        "  odradek completion bash > ~/.local/share/bash-completion/completions/odradek\n"
        '  odradek completion zsh > ~/.zsh/_odradek        # a directory of "$fpath"\n'
        "  odradek completion fish > ~/.config/fish/completions/odradek.fish"
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "shell", metavar="SHELL", nargs="?", choices=tuple(_SCRIPTS), help="bash, zsh or fish"
    )
    what.add_argument("--candidates", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Prints the script, or for a script what can follow."""
    if arguments.candidates is None:
        print(_SCRIPTS[arguments.shell], end="")
        return 0
    for one in candidates(arguments.candidates):
        print(f"{one.word}\t{one.summary}" if one.summary else one.word)
    return 0


def candidates(words: Sequence[str]) -> list[Candidate]:
    """What can be in the place of the last word, which is its beginning.

    Args:
        words: The command line without the program.
    """
    from odradek.cli.main import build_parser

    *before, prefix = words or [""]
    parser: argparse.ArgumentParser = build_parser(before)
    waiting: argparse.Action | None = None  # An option whose value is next.
    place = 0  # Of the next argument without an option.
    for word in before:
        if waiting is not None:
            waiting = None
        elif word.startswith("-"):
            waiting = _option_with_value(parser, word)
        elif (branch := _branch(parser)) is not None and word in branch.choices:
            parser, place = branch.choices[word], 0
        else:
            place += 1
    found = _of_value(waiting) if waiting is not None else _of_place(parser, place, prefix)
    return [one for one in found if one.word.startswith(prefix)]


def _option_with_value(parser: argparse.ArgumentParser, word: str) -> argparse.Action | None:
    for action in parser._actions:
        if word in action.option_strings:
            return None if action.nargs == 0 else action
    return None


def _branch(
    parser: argparse.ArgumentParser,
) -> "argparse._SubParsersAction[argparse.ArgumentParser] | None":
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action
    return None


def _of_place(parser: argparse.ArgumentParser, place: int, prefix: str) -> Iterator[Candidate]:
    if prefix.startswith("-"):
        for action in parser._actions:
            if action.help != argparse.SUPPRESS:
                summary = _summary(parser, action)
                yield from (Candidate(one, summary) for one in action.option_strings)
        return
    branch = _branch(parser)
    if branch is not None:
        for action in branch._choices_actions:
            yield Candidate(action.dest, action.help or "")
        return
    places = [one for one in parser._actions if not one.option_strings]
    if places:
        yield from _of_value(places[min(place, len(places) - 1)])


def _of_value(action: argparse.Action) -> Iterator[Candidate]:
    if action.choices is not None:
        yield from (Candidate(str(one), "") for one in action.choices)
    elif action.metavar == "NAME" and action.dest in ("profile", "name"):
        yield from _profiles()


def _profiles() -> Iterator[Candidate]:
    from odradek.cli.connection.profiles import Profiles

    try:
        profiles = Profiles.load(os.environ)
    except CommandError:  # The command itself tells.
        return
    for name, settings in sorted(profiles.by_name.items()):
        yield Candidate(name, settings.get("bootstrap.servers", ""))


def _summary(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    return text.partition("; ")[0].partition(" (default")[0]
