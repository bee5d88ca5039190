"""Runs checks on one server: all of them, though one fails, for to start a server is dear."""

from collections.abc import Callable, Iterable

__all__ = ["Check", "name_of", "run_all"]

# A check makes its own topics and groups on the server at this address.
Check = Callable[[str], None]


def name_of(check: Check) -> str:
    return check.__name__.removeprefix("check_")


def run_all(checks: Iterable[Check], bootstrap: str) -> None:
    """
    Raises:
        ExceptionGroup: of the checks that failed, each with its name.
    """
    failures: list[Exception] = []
    for check in checks:
        try:
            check(bootstrap)
        except Exception as error:
            error.add_note(f"in the check {name_of(check)}")
            failures.append(error)
    if failures:
        raise ExceptionGroup("checks failed", failures)
