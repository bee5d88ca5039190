"""The token bucket: it starts full, may be overdrawn, fills up to its brim."""

from odradek.broker.quotas.token_bucket import TokenBucket


def test_it_starts_full_and_never_overflows() -> None:
    bucket = TokenBucket(seconds=11, bound=5, now_ms=0)

    assert bucket.tokens(5, 0) == 55
    assert bucket.tokens(5, 60_000) == 55


def test_it_fills_with_time() -> None:
    bucket = TokenBucket(seconds=11, bound=5, now_ms=0)
    bucket.take(60, 5, 0)

    assert bucket.throttle_ms(5, 0) == 1_000
    assert bucket.tokens(5, 500) == -2.5
    assert bucket.throttle_ms(5, 1_000) == 0


def test_a_lower_bound_lowers_the_brim() -> None:
    bucket = TokenBucket(seconds=11, bound=5, now_ms=0)

    assert bucket.tokens(1, 0) == 11


def test_a_clock_that_stands_still_gives_nothing() -> None:
    bucket = TokenBucket(seconds=1, bound=5, now_ms=1_000)
    bucket.take(5, 5, 1_000)

    assert bucket.tokens(5, 1_000) == 0
