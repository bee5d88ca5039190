"""The verdict over a history."""

from collections import Counter
from dataclasses import dataclass

from tests.chaos.checker.anomalies import Anomaly, show_time
from tests.chaos.checker.groups import check_groups
from tests.chaos.checker.healing import check_healing
from tests.chaos.checker.history import History, Outcome, TransactionFate
from tests.chaos.checker.reads import check_reads
from tests.chaos.checker.transactions import check_transactions
from tests.chaos.checker.writes import check_writes

__all__ = ["Report", "judge"]

SHOWN = 5  # Of each anomaly in each place.


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found, and how much was looked at."""

    anomalies: tuple[Anomaly, ...]
    allowed: frozenset[str]
    # Sends by outcome, and how often records were read.
    outcomes: dict[str, int]
    read: int
    faults: tuple[str, ...]
    # Transactions by what became of them.
    transactions: dict[str, int]

    @property
    def illegal(self) -> tuple[Anomaly, ...]:
        """Those that the run may not have."""
        return tuple(one for one in self.anomalies if one.name not in self.allowed)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(one.name for one in self.anomalies)

    def show(self) -> str:
        """Text for a person: the first of each anomaly in each place, and how many there are."""
        counts = Counter((one.name, one.where) for one in self.anomalies)
        shown: Counter[tuple[str, str]] = Counter()
        lines = []
        for one in self.anomalies:
            key = (one.name, one.where)
            shown[key] += 1
            if shown[key] <= SHOWN:
                mark = " (allowed in this run)" if one.name in self.allowed else ""
                lines.append(f"{one}{mark}")
            elif shown[key] == SHOWN + 1:
                lines.append(f"{one.name} {one.where}: {counts[key] - SHOWN} more")
        sends = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        if any(self.transactions.values()):
            fates = ", ".join(f"{count} {name}" for name, count in self.transactions.items())
            lines.append(f"transactions: {fates}")
        lines.append(
            f"{len(self.illegal)} illegal anomalies, {len(self.anomalies)} in all; sends: {sends};"
            f" records read {self.read} times; faults: {len(self.faults)}"
        )
        return "\n".join(lines)


def judge(history: History) -> Report:
    """Checks everything."""
    anomalies = (
        *check_writes(history),
        *check_transactions(history),
        *check_reads(history),
        *check_groups(history),
        *check_healing(history),
    )
    outcomes: dict[str, int] = {outcome.value: 0 for outcome in Outcome}
    for send in history.sends:
        outcomes[send.outcome.value] += 1
    fates = {fate.value: 0 for fate in TransactionFate}
    for transaction in history.transactions:
        fates[transaction.fate.value] += 1
    return Report(
        anomalies=anomalies,
        allowed=history.allowed,
        outcomes=outcomes,
        read=sum(len(poll.records) for poll in history.polls),
        faults=tuple(
            f"{fault.name} {', '.join(fault.targets)} {show_time(fault.t)}"
            for fault in history.faults
            if fault.phase == "begin"
        ),
        transactions=fates,
    )
