"""Which partition of the offsets topic keeps a group: every client and tool computes the same."""

__all__ = ["java_string_hash", "partition_for"]


def java_string_hash(text: str) -> int:
    """`String.hashCode`: 31 * h + c over UTF-16 units, a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFF_FFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of `group_id`.

    The hash without its sign, not without its sign bit: those differ for negative numbers.
    -2^31, which has no positive counterpart among 32-bit numbers, counts as 0.
    """
    value = java_string_hash(group_id)
    return 0 if value == -(1 << 31) else abs(value) % partition_count
