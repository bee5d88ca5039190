"""`sticky` and `cooperative-sticky`: balanced, and as few partitions as possible change hands.

How it works:

1. Members keep the partitions that they own and still subscribe to. Of two that claim a partition,
   the one of the higher generation keeps it; of equal generations neither does.
2. A partition without an owner goes to the member with the fewest partitions; partitions with few
   subscribers come first.
3. While some partition can go to a member that has at least two fewer than its owner, it does: the
   fullest member gives first, and rather a partition it has just got than one it held. Every step
   makes the sum of the squared loads smaller, so this ends. Where all subscribe to the same topics
   no balanced distribution moves fewer partitions.

Example: c0 has 0-5, c1 joins. c0 keeps three, c1 gets three.

The two differ in how the leader learns the owned partitions, and in how a partition changes its
owner. With `sticky` it is assigned at once: all members have given up everything before. With
`cooperative-sticky` it is left out: its owner sees that it is missing, gives it up and joins again,
and the next round assigns it. Members go on reading the partitions that they keep.
"""

from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from typing import Final

from odradek.client.assignors.interface import Subscription, TopicPartitions, sorted_members
from odradek.client.assignors.wire import encode_sticky_data, parse_sticky_data
from odradek.errors import DecodeError
from odradek.model import TopicPartition

__all__ = ["CooperativeStickyAssignor", "StickyAssignor"]

_GENERATION: Final = Struct(">i")


class StickyAssignor:
    """`sticky`; see the module's docstring."""

    name = "sticky"
    is_cooperative = False

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:
        """The last assignment and its generation."""
        return encode_sticky_data(owned, generation)

    def assign(
        self, topics: Mapping[str, TopicPartitions], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See `Assignor.assign`."""
        claims = {member: _sticky_claim(subscription) for member, subscription in members.items()}
        return _distribute(topics, members, claims)


class CooperativeStickyAssignor:
    """`cooperative-sticky`; see the module's docstring."""

    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002 - travels in the subscription
        """The generation, for leaders that do not know subscriptions of version 2."""
        return _GENERATION.pack(generation)

    def assign(
        self, topics: Mapping[str, TopicPartitions], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See `Assignor.assign`; partitions that change their owner are left out."""
        claims = {
            member: (subscription.owned, _cooperative_generation(subscription))
            for member, subscription in members.items()
        }
        # A member that claims a partition may still read it, rightly or not.
        holders: dict[TopicPartition, list[str]] = {}
        for member, (owned, _) in claims.items():
            for tp in set(owned):
                holders.setdefault(tp, []).append(member)
        return {
            member: [tp for tp in assigned if holders.get(tp, [member]) == [member]]
            for member, assigned in _distribute(topics, members, claims).items()
        }


_Claim = tuple[Iterable[TopicPartition], int]


def _sticky_claim(subscription: Subscription) -> _Claim:
    if not subscription.user_data:
        return (), -1
    try:
        return parse_sticky_data(subscription.user_data)
    except DecodeError:
        return (), -1  # Unreadable data: the member only loses its past.


def _cooperative_generation(subscription: Subscription) -> int:
    data = subscription.user_data
    if subscription.generation < 0 and data is not None and len(data) >= _GENERATION.size:
        generation: int = _GENERATION.unpack_from(data)[0]
        return generation
    return subscription.generation


def _distribute(
    topics: Mapping[str, TopicPartitions],
    members: Mapping[str, Subscription],
    claims: Mapping[str, _Claim],
) -> dict[str, list[TopicPartition]]:
    order = sorted_members(members)
    shares = {member: _Share() for member in order}
    audiences: dict[str, _Audience] = {
        topic: audience
        for topic in sorted(topics)
        if (audience := tuple(member for member in order if topic in members[member].topics))
    }
    rightful = _rightful(topics, members, claims, order)
    for tp, member in rightful.items():
        shares[member].add(tp, audiences[tp.topic], is_held=True)
    for topic, audience in sorted(audiences.items(), key=lambda item: (len(item[1]), item[0])):
        for partition in range(topics[topic].count):
            tp = TopicPartition(topic, partition)
            if tp not in rightful:
                poorest = min(audience, key=lambda member: shares[member].size)
                shares[poorest].add(tp, audience, is_held=False)
    _balance(shares)
    return {member: sorted(share.all()) for member, share in shares.items()}


# The members that subscribe to a topic, in the order in which they are served.
_Audience = tuple[str, ...]


class _Share:
    """The partitions of one member, by the subscribers they share: few sets, many partitions."""

    __slots__ = ("_got", "_held", "size")

    def __init__(self) -> None:
        self._held: dict[_Audience, list[TopicPartition]] = {}
        self._got: dict[_Audience, list[TopicPartition]] = {}
        self.size = 0

    def add(self, tp: TopicPartition, audience: _Audience, *, is_held: bool) -> None:
        (self._held if is_held else self._got).setdefault(audience, []).append(tp)
        self.size += 1

    def take(self, audience: _Audience) -> TopicPartition:
        """Gives one partition away, rather one that it has just got."""
        source = self._got if self._got.get(audience) else self._held
        self.size -= 1
        return source[audience].pop()

    def audiences(self) -> Iterator[_Audience]:
        """Of all its partitions; those it has just got come first."""
        for source in (self._got, self._held):
            yield from (audience for audience, partitions in source.items() if partitions)

    def all(self) -> Iterator[TopicPartition]:
        for source in (self._held, self._got):
            for partitions in source.values():
                yield from partitions


def _rightful(
    topics: Mapping[str, TopicPartitions],
    members: Mapping[str, Subscription],
    claims: Mapping[str, _Claim],
    order: list[str],
) -> dict[TopicPartition, str]:
    """The owned partitions of members that still subscribe and whose claim is the newest."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in order:
        owned, generation = claims[member]
        for tp in set(owned):
            known = topics.get(tp.topic)
            if known is None or not 0 <= tp.partition < known.count:
                continue
            present = best.get(tp)
            if present is None or generation > present[0]:
                best[tp] = generation, member
            elif generation == present[0]:
                best[tp] = generation, None
    return {
        tp: owner
        for tp in sorted(best)
        if (owner := best[tp][1]) is not None and tp.topic in members[owner].topics
    }


def _balance(shares: Mapping[str, _Share]) -> None:
    """Step 3 of the module's docstring."""
    while True:
        for giver in sorted(shares, key=lambda member: -shares[member].size):
            audience, taker = _poorest_taker(giver, shares)
            if taker is not None:
                shares[taker].add(shares[giver].take(audience), audience, is_held=False)
                break
        else:
            return


def _poorest_taker(giver: str, shares: Mapping[str, _Share]) -> tuple[_Audience, str | None]:
    """The member that has at least two fewer than `giver` and could take a partition of it."""
    best: tuple[_Audience, str | None] = (), None
    least = shares[giver].size - 1
    for audience in shares[giver].audiences():
        poorest = min(audience, key=lambda member: shares[member].size)
        if shares[poorest].size < least:
            best, least = (audience, poorest), shares[poorest].size
    return best
