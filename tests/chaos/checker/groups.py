"""Whether groups keep what members committed, and give each partition to one member.

A committed offset is a register: members write it, a client looks at it. A commit that was not
answered may take effect at any later time. A coordinator that is cut off may tell an old offset
for as long as the fault lasts, which is staleness and no anomaly; what one client was told must not
go back, and after healing each look must find the last commit.
"""

from collections.abc import Iterator

from tests.chaos.checker.anomalies import Anomaly, show_time
from tests.chaos.checker.history import Commit, Committed, History, Joined, Outcome, Partition

__all__ = ["check_groups"]


def check_groups(history: History) -> Iterator[Anomaly]:
    """Checks commits, ownership and generations."""
    yield from _commits(history)
    yield from _ownership(history)
    yield from _fenced_commits(history)
    yield from _generations(history)


def _commits(history: History) -> Iterator[Anomaly]:
    commits: dict[tuple[str, Partition], list[Commit]] = {}
    for commit in history.commits:
        if commit.outcome is not Outcome.FAIL:
            for partition in commit.offsets:
                commits.setdefault((commit.group, partition), []).append(commit)
    healed = history.healed.t if history.healed is not None else float("inf")
    # What a client was told last: the look, and the commits that explain it.
    told: dict[tuple[str, str, Partition], tuple[Committed, list[Commit]]] = {}
    for look in history.looks:
        for partition, offset in sorted(look.offsets.items()):
            made = commits.get((look.group, partition), [])
            sources = [
                commit
                for commit in made
                if commit.offsets[partition] == offset and commit.began <= look.t
            ]
            if offset is not None and not sources:
                yield _about_look("phantom-commit", look, partition, "no member committed that")
                continue
            key = (look.process, look.group, partition)
            before = told.get(key)
            if before is not None and _is_older(sources, before[1]):
                yield _about_look(
                    "commit-regression", look, partition,
                    f"it was told {before[0].offsets[partition]} {show_time(before[0].t)}",
                )  # fmt: skip
            elif later := _replaced_by(sources, made, look) if look.since >= healed else None:
                yield _about_look(
                    "commit-regression", look, partition,
                    f"{later.process} committed {later.offsets[partition]} from"
                    f" {show_time(later.began)} to {show_time(later.ended)}",
                )  # fmt: skip
            told[key] = (look, sources)


def _is_older(sources: list[Commit], before: list[Commit]) -> bool:
    """Whether each commit that explains a look had ended when those of the look before began."""
    if not before:
        return False
    began = min(commit.began for commit in before)
    return all(commit.ended < began for commit in sources)


def _replaced_by(sources: list[Commit], made: list[Commit], look: Committed) -> Commit | None:
    """A commit that was accepted before the look, after all that explain what it told."""
    accepted = (one for one in made if one.outcome is Outcome.OK and one.ended < look.since)
    for later in sorted(accepted, key=lambda one: one.ended, reverse=True):
        if all(commit.ended < later.began for commit in sources):
            return later
    return None


def _about_look(name: str, look: Committed, partition: Partition, text: str) -> Anomaly:
    offset = look.offsets[partition]
    return Anomaly(
        name=name,
        where=f"group {look.group} {partition}",
        text=f"{look.process} asked {show_time(look.since)} and was told {offset}; {text}",
        offsets=() if offset is None else (offset,),
        processes=(look.process,),
    )


def _ownership(history: History) -> Iterator[Anomaly]:
    owners: dict[tuple[str, int, Partition], Joined] = {}
    for joined in history.reading:
        if not isinstance(joined, Joined) or joined.generation is None:
            continue
        for partition in joined.partitions:
            key = (joined.group, joined.generation, partition)
            other = owners.setdefault(key, joined)
            if other.member != joined.member:
                yield Anomaly(
                    name="double-ownership",
                    where=f"group {joined.group} {partition}",
                    text=f"in generation {joined.generation} it was given to {other.process}"
                    f" ({other.member}) {show_time(other.t)} and to {joined.process}"
                    f" ({joined.member}) {show_time(joined.t)}",
                    processes=(other.process, joined.process),
                )


def _fenced_commits(history: History) -> Iterator[Anomaly]:
    # When a member first had the assignment of a generation: that generation had begun by then.
    begun: dict[str, list[Joined]] = {}
    for joined in history.reading:
        if isinstance(joined, Joined) and joined.generation is not None:
            begun.setdefault(joined.group, []).append(joined)
    for commit in history.commits:
        if commit.outcome is not Outcome.OK or commit.generation is None:
            continue
        for joined in begun.get(commit.group, []):
            assert joined.generation is not None
            if joined.generation > commit.generation and joined.t < commit.handed_over:
                yield Anomaly(
                    name="fenced-commit",
                    where=f"group {commit.group}",
                    text=f"{joined.process} had generation {joined.generation}"
                    f" {show_time(joined.t)}; {commit.process} committed in generation"
                    f" {commit.generation}"
                    f" {show_time(commit.handed_over)} and was answered {show_time(commit.ended)}",
                    processes=(joined.process, commit.process),
                )
                break


def _generations(history: History) -> Iterator[Anomaly]:
    last: dict[tuple[str, str], Joined] = {}
    for joined in history.reading:
        if not isinstance(joined, Joined) or joined.generation is None:
            continue
        key = (joined.process, joined.group)
        before = last.get(key)
        if before is not None and joined.generation < (before.generation or 0):
            yield Anomaly(
                name="generation-regression",
                where=f"group {joined.group}",
                text=f"{joined.process} had generation {before.generation}"
                f" {show_time(before.t)} and has {joined.generation} {show_time(joined.t)}",
                processes=(joined.process,),
            )
        last[key] = joined
