"""What holds the last stable offset back: 10 §10."""

from odradek.storage.producers.unstable_transactions import (
    CompletedTransaction,
    UnstableTransactions,
)


def ended(first_offset: int, marker_offset: int) -> CompletedTransaction:
    return CompletedTransaction(1, first_offset, marker_offset, is_aborted=False)


def test_nothing_is_unstable_without_transactions() -> None:
    transactions = UnstableTransactions()
    assert transactions.first_offset is None
    assert not transactions


def test_earliest_ongoing_transaction_counts_whichever_ends_first() -> None:
    transactions = UnstableTransactions()
    for producer_id, first_offset in ((1, 10), (2, 12), (3, 15)):
        transactions.begin(producer_id, first_offset)
    seen = []
    for completed in (ended(12, 20), ended(10, 21), ended(15, 22)):
        transactions.complete(completed)
        transactions.forget_replicated(completed.last_offset + 1)
        seen.append(transactions.first_offset)
    assert seen == [10, 15, None]
    assert not transactions


def test_completed_transaction_is_unstable_until_its_marker_is_replicated() -> None:
    transactions = UnstableTransactions()
    transactions.begin(1, 10)
    transactions.complete(ended(10, 20))
    transactions.forget_replicated(20)  # The marker itself is not below it.
    assert transactions.first_offset == 10
    assert transactions
    transactions.forget_replicated(21)
    assert transactions.first_offset is None


def test_example_of_the_module() -> None:
    transactions = UnstableTransactions()
    for completed in (ended(10, 20), ended(15, 22), ended(12, 25)):
        transactions.complete(completed)
        assert transactions.first_offset == 10
    transactions.forget_replicated(21)
    assert transactions.first_offset == 12
    transactions.forget_replicated(25)
    assert transactions.first_offset == 12
    transactions.forget_replicated(26)
    assert transactions.first_offset is None


def test_last_stable_offset_after_a_transaction_is_that_of_the_earliest_other_one() -> None:
    transactions = UnstableTransactions()
    transactions.begin(1, 10)
    transactions.begin(2, 12)
    assert transactions.last_stable_offset_for(ended(12, 20)) == 10
    assert transactions.last_stable_offset_for(ended(10, 20)) == 12
    transactions.complete(ended(12, 20))
    assert transactions.last_stable_offset_for(ended(10, 22)) == 23


def test_transaction_begun_behind_the_marker_does_not_count_for_it() -> None:
    """A follower applies a whole fetched set before it completes the transactions in it."""
    transactions = UnstableTransactions()
    transactions.begin(1, 10)
    transactions.begin(1, 30)
    assert transactions.last_stable_offset_for(ended(10, 20)) == 21
    transactions.complete(ended(10, 20))
    transactions.forget_replicated(40)
    assert transactions.first_offset == 30


def test_offsets_that_go_back_in_a_damaged_log_are_put_in_order() -> None:
    transactions = UnstableTransactions()
    transactions.begin(1, 10)
    transactions.begin(2, 5)
    assert transactions.first_offset == 5
    transactions.complete(ended(5, 20))
    transactions.forget_replicated(21)
    assert transactions.first_offset == 10
