"""What access rules decide together: the vectors of the specification, 13 section 17.2."""

import pytest

from odradek.security.acls import IMPLYING, AccessRules, AclBinding, normal_host
from odradek.security.operations import Operation, PatternType, Permission, ResourceType
from odradek.security.principal import ANONYMOUS, Principal

ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

HOST = "10.0.0.1"


def rule(
    permission: Permission,
    user: str,
    operation: Operation,
    name: str,
    *,
    host: str = "*",
    kind: ResourceType = TOPIC,
    pattern: PatternType = LITERAL,
) -> AclBinding:
    return AclBinding(kind, pattern, name, f"User:{user}", host, operation, permission)


RULES = (
    rule(ALLOW, "alice", Operation.READ, "orders"),
    rule(DENY, "alice", Operation.READ, "orders", host="10.0.0.9"),
    rule(ALLOW, "bob", Operation.ALL, "pay", pattern=PREFIXED),
    rule(DENY, "bob", Operation.DELETE, "payroll"),
    rule(ALLOW, "*", Operation.DESCRIBE, "*"),
    rule(DENY, "eve", Operation.ALL, "*"),
    rule(ALLOW, "eve", Operation.WRITE, "orders"),
    rule(ALLOW, "carol", Operation.ALTER_CONFIGS, "orders"),
    rule(DENY, "dan", Operation.DESCRIBE, "orders"),
    rule(ALLOW, "dan", Operation.READ, "orders"),
    rule(ALLOW, "gina", Operation.CREATE, "kafka-cluster", kind=CLUSTER),
    rule(ALLOW, "alice", Operation.READ, "app-", kind=GROUP, pattern=PREFIXED),
)
ROOT = Principal("User", "root")


def decide(
    rules: AccessRules, user: str, operation: Operation, kind: ResourceType, name: str, host: str
) -> bool:
    return rules.is_allowed(Principal("User", user), host, operation, kind, name)


@pytest.mark.parametrize(
    ("user", "host", "operation", "kind", "name", "strict", "open_by_default"),
    [
        pytest.param(*case, id=f"13:{handle}")
        for handle, case in {
            "A1": ("alice", HOST, Operation.READ, TOPIC, "orders", True, True),
            "A2": ("alice", "10.0.0.9", Operation.READ, TOPIC, "orders", False, False),
            "A3": ("alice", "10.0.0.9", Operation.DESCRIBE, TOPIC, "orders", True, True),
            "A4": ("alice", HOST, Operation.WRITE, TOPIC, "orders", False, False),
            "A5": ("alice", HOST, Operation.READ, TOPIC, "orders2", False, False),
            "A6": ("alice", HOST, Operation.DESCRIBE, TOPIC, "orders2", True, True),
            "A7": ("bob", HOST, Operation.WRITE, TOPIC, "payments", True, True),
            "A8": ("bob", HOST, Operation.DELETE, TOPIC, "payroll", False, False),
            "A9": ("bob", HOST, Operation.ALTER, TOPIC, "payroll", True, True),
            "A10": ("bob", HOST, Operation.READ, TOPIC, "pa", False, False),
            "A11": ("bob", HOST, Operation.READ, TOPIC, "pay", True, True),
            "A12": ("eve", HOST, Operation.WRITE, TOPIC, "orders", False, False),
            "A13": ("carol", HOST, Operation.DESCRIBE_CONFIGS, TOPIC, "orders", True, True),
            "A14": ("carol", HOST, Operation.ALTER, TOPIC, "orders", False, False),
            "A15": ("dan", HOST, Operation.DESCRIBE, TOPIC, "orders", False, False),
            "A16": ("dan", HOST, Operation.READ, TOPIC, "orders", True, True),
            "A17": ("gina", HOST, Operation.CREATE, CLUSTER, "kafka-cluster", True, True),
            "A18": ("gina", HOST, Operation.CREATE, TOPIC, "x", False, False),
            "A19": ("alice", HOST, Operation.READ, GROUP, "app-7", True, True),
            "A20": ("alice", HOST, Operation.READ, GROUP, "app", False, True),
            "A21": ("zoe", HOST, Operation.DESCRIBE, TOPIC, "anything", True, True),
            "A22": ("zoe", HOST, Operation.READ, TOPIC, "anything", False, False),
            "A23": ("zoe", HOST, Operation.WRITE, TRANSACTIONAL_ID, "t", False, True),
            "A24": ("root", HOST, Operation.DELETE, TOPIC, "payroll", True, True),
        }.items()
    ],
)
def test_the_rules_of_the_specification(
    user: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    strict: bool,
    open_by_default: bool,
) -> None:
    closed = AccessRules(RULES, super_users=[ROOT])
    opened = AccessRules(RULES, super_users=[ROOT], allow_without_rules=True)
    backwards = AccessRules(reversed(RULES), super_users=[ROOT])

    assert decide(closed, user, operation, kind, name, host) is strict
    assert decide(opened, user, operation, kind, name, host) is open_by_default
    assert decide(backwards, user, operation, kind, name, host) is strict


def test_a_wildcard_is_a_whole_name() -> None:
    """13:A27: `pay*` is a name like any other; `User:*` and the host `*` are every one."""
    literal = AccessRules([rule(ALLOW, "bob", Operation.READ, "pay*")])
    everyone = AccessRules([rule(ALLOW, "*", Operation.READ, "t")])
    some = AccessRules([rule(ALLOW, "b*", Operation.READ, "t")])

    assert not decide(literal, "bob", Operation.READ, TOPIC, "payments", HOST)
    assert decide(literal, "bob", Operation.READ, TOPIC, "pay*", HOST)
    assert everyone.is_allowed(ANONYMOUS, HOST, Operation.READ, TOPIC, "t")
    assert not everyone.is_allowed(Principal("Group", "g"), HOST, Operation.READ, TOPIC, "t")
    assert not decide(some, "bob", Operation.READ, TOPIC, "t", HOST)


@pytest.mark.parametrize("pattern", ["a", "ab", "abc"])
def test_every_prefix_of_a_name_covers_it_and_no_longer_one_does(pattern: str) -> None:
    others = [rule(ALLOW, "x", Operation.READ, name, pattern=PREFIXED) for name in ("b", "abcd")]
    rules = AccessRules([*others, rule(ALLOW, "bob", Operation.READ, pattern, pattern=PREFIXED)])

    assert decide(rules, "bob", Operation.READ, TOPIC, "abc", HOST)
    assert not decide(rules, "bob", Operation.READ, TOPIC, pattern[:-1] + "z", HOST)
    assert not decide(rules, "x", Operation.READ, TOPIC, "abc", HOST)


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
    ],
)
def test_hosts_are_compared_as_addresses(stored: str, asked: str) -> None:
    rules = AccessRules([rule(ALLOW, "bob", Operation.READ, "t", host=stored)])

    assert decide(rules, "bob", Operation.READ, TOPIC, "t", asked)
    assert not decide(rules, "bob", Operation.READ, TOPIC, "t", "10.0.0.2")
    assert normal_host("no address") == "no address"


@pytest.mark.parametrize(
    ("implied", "by"), [(implied, by) for implied, some in IMPLYING.items() for by in sorted(some)]
)
def test_an_allowed_operation_implies_another_and_a_denied_one_does_not(
    implied: Operation, by: Operation
) -> None:
    allowing = AccessRules([rule(ALLOW, "bob", by, "t")])
    denying = AccessRules([rule(DENY, "bob", by, "t"), rule(ALLOW, "bob", implied, "t")])

    assert decide(allowing, "bob", implied, TOPIC, "t", HOST)
    assert decide(denying, "bob", implied, TOPIC, "t", HOST)
    assert not decide(denying, "bob", by, TOPIC, "t", HOST)


def test_a_client_with_a_token_has_the_rights_of_the_owner() -> None:
    """13 section 3: principals are equal by type and name."""
    token = Principal("User", "bob", is_token_authenticated=True)
    owner = Principal("User", "bob")
    rules = AccessRules([rule(ALLOW, "bob", Operation.READ, "t")])

    assert token == owner
    assert hash(token) == hash(owner)
    assert owner != Principal("Group", "bob")
    assert rules.is_allowed(token, HOST, Operation.READ, TOPIC, "t")
    assert AccessRules([], super_users=[owner]).is_allowed(token, HOST, Operation.READ, TOPIC, "t")
