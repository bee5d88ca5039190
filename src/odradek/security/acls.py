"""Access rules, and the decision that all of them make together.

A rule allows or denies an operation on all resources that its pattern covers, to a principal that
connects from a host. `AccessRules` is a snapshot of all rules: it is replaced, never edited. It
decides in this order (spec 13, section 9):

1. A super user may do everything.
2. Relevant are the rules whose pattern covers the resource: the same literal name, the literal
   `*`, or a prefix of the name. The principal of a relevant rule does not matter yet.
3. No rule is relevant: `allow_without_rules` decides.
4. A relevant DENY that fits principal, host and operation: denied.
5. A relevant ALLOW that fits: allowed. For an ALLOW, an operation fits, too, if it implies the
   asked one (`IMPLYING`).
6. Denied.

So neither the order of rules nor how specific they are matters. For example, with

    ALLOW User:dan READ TOPIC orders      DENY User:dan DESCRIBE TOPIC orders

dan may READ orders but not DESCRIBE it: READ implies DESCRIBE, yet a DENY wins over every ALLOW;
and nothing is implied for a DENY, so READ is left alone.

Wildcards are whole names only: the principal `User:*`, the host `*`, the literal name `*`.
`orders*` is a name like any other.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from ipaddress import IPv6Address, ip_address
from types import MappingProxyType
from typing import Final, NamedTuple

from odradek.security.operations import Operation, PatternType, Permission, ResourceType
from odradek.security.principal import Principal

__all__ = ["IMPLYING", "WILDCARD", "AccessRules", "AclBinding", "normal_host"]

WILDCARD: Final = "*"

# An ALLOW for one of these operations allows the key, too.
IMPLYING: Final[Mapping[Operation, frozenset[Operation]]] = MappingProxyType(
    {
        Operation.DESCRIBE: frozenset(
            {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
        ),
        Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
    }
)


class AclBinding(NamedTuple):
    """One access rule."""

    resource_type: ResourceType
    pattern_type: PatternType  # LITERAL or PREFIXED.
    resource_name: str
    principal: str  # As `str(Principal)` writes it; `User:*` is every user.
    host: str  # An address, or `*`.
    operation: Operation
    permission: Permission  # DENY or ALLOW.


def normal_host(host: str) -> str:
    """Returns one spelling for all spellings of an address: `::ffff:10.0.0.1` is 10.0.0.1.

    A text that is not an address is returned unchanged.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)


# Principal and host as the rule spells them, and the operation.
_Entry = tuple[str, str, Operation]


class _Pattern:
    """The rules of one pattern."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.denied: set[_Entry] = set()
        self.allowed: set[_Entry] = set()

    def add(self, rule: AclBinding) -> None:
        entries = self.allowed if rule.permission is Permission.ALLOW else self.denied
        entries.add((rule.principal, normal_host(rule.host), rule.operation))


class _Patterns:
    """The patterns of one type of resource, by name."""

    __slots__ = ("_literals", "_prefixes", "_sizes")

    def __init__(self, rules: Iterable[AclBinding]) -> None:
        self._literals: dict[str, _Pattern] = {}
        self._prefixes: dict[str, _Pattern] = {}
        for rule in rules:
            is_literal = rule.pattern_type is PatternType.LITERAL
            patterns = self._literals if is_literal else self._prefixes
            patterns.setdefault(rule.resource_name, _Pattern()).add(rule)
        self._sizes = sorted({len(prefix) for prefix in self._prefixes})

    def covering(self, name: str) -> Iterator[_Pattern]:
        """Every pattern that covers a name: one look-up per length of a prefix."""
        for literal in (name, WILDCARD):
            if literal in self._literals:
                yield self._literals[literal]
        for size in self._sizes:
            if size > len(name):
                break
            pattern = self._prefixes.get(name[:size])
            if pattern is not None:
                yield pattern


_NO_PATTERNS: Final = _Patterns(())


class AccessRules:
    """All rules of a cluster at one moment; an `Authorizer`.

    Args:
        rules: LITERAL and PREFIXED patterns, DENY and ALLOW only.
        super_users: May do everything.
        allow_without_rules: Whether a resource that no rule covers is allowed to every principal
            (`allow.everyone.if.no.acl.found`).
    """

    __slots__ = ("_allow_without_rules", "_patterns", "_super_users")

    def __init__(
        self,
        rules: Iterable[AclBinding],
        *,
        super_users: Iterable[Principal] = (),
        allow_without_rules: bool = False,
    ) -> None:
        by_type: dict[ResourceType, list[AclBinding]] = {}
        for rule in rules:
            by_type.setdefault(rule.resource_type, []).append(rule)
        self._patterns = {kind: _Patterns(some) for kind, some in by_type.items()}
        self._super_users = frozenset(super_users)
        self._allow_without_rules = allow_without_rules

    def is_allowed(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        if principal in self._super_users:
            return True
        patterns = list(self._patterns.get(resource_type, _NO_PATTERNS).covering(name))
        if not patterns:
            return self._allow_without_rules
        subjects = _subjects(principal, host)
        denying = _entries(subjects, {operation, Operation.ALL})
        if not all(denying.isdisjoint(pattern.denied) for pattern in patterns):
            return False
        implying = IMPLYING.get(operation, frozenset())
        allowing = denying | _entries(subjects, implying)
        return not all(allowing.isdisjoint(pattern.allowed) for pattern in patterns)


def _subjects(principal: Principal, host: str) -> list[tuple[str, str]]:
    """Principal and host in every way a rule can name them."""
    names = (str(principal), f"{principal.kind}:{WILDCARD}")
    return [(name, address) for name in names for address in (normal_host(host), WILDCARD)]


def _entries(
    subjects: Iterable[tuple[str, str]], operations: AbstractSet[Operation]
) -> set[_Entry]:
    return {(name, host, operation) for name, host in subjects for operation in operations}
