"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

import dataclasses
import logging

import pytest

from odradek.broker.handlers.alter_configs import handle_alter_configs
from odradek.broker.handlers.describe_configs import handle_describe_configs
from odradek.broker.handlers.incremental_alter_configs import handle_incremental_alter_configs
from odradek.broker.settings.config_changes import KeyChange
from odradek.config import SettingSource
from odradek.errors import ErrorCode
from odradek.metadata.changes import ConfigSet
from odradek.metadata.image import ConfigResource
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.enums import ConfigResourceType
from odradek.protocol.messages.alter_configs import (
    AlterableConfig as ReplacedConfig,
)
from odradek.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
)
from odradek.protocol.messages.alter_configs import (
    AlterConfigsResource as ReplacedResource,
)
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.unit.broker.handlers.handler_fakes import BrokerFixture, FakeControllerPort

TOPIC, BROKER, LOGGER, METRICS, GROUP = (int(kind) for kind in ConfigResourceType)
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(
    broker: BrokerFixture,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    synonyms: bool = False,
) -> DescribeConfigsResult:
    message = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        ],
        include_synonyms=synonyms,
        include_documentation=version >= 3,
    )
    answer = broker.ask(
        handle_describe_configs,
        ApiKey.DESCRIBE_CONFIGS,
        message,
        version,
        DescribeConfigsResponse,
    )
    return answer.results[0]


def alter(
    broker: BrokerFixture,
    *resources: tuple[int, str, list[tuple[str, int, str | None]]],
    validate_only: bool = False,
    version: int = 1,
) -> list[int]:
    message = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in configs
                ],
            )
            for kind, name, configs in resources
        ],
        validate_only=validate_only,
    )
    answer = broker.ask(
        handle_incremental_alter_configs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        message,
        version,
        IncrementalAlterConfigsResponse,
    )
    named = [(row.resource_type, row.resource_name) for row in answer.responses]
    assert named == [(kind, name) for kind, name, _ in resources]
    return [row.error_code for row in answer.responses]


def replace(
    broker: BrokerFixture, kind: int, name: str, version: int = 2, **configs: str | None
) -> int:
    message = AlterConfigsRequest(
        resources=[
            ReplacedResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    ReplacedConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        ]
    )
    answer = broker.ask(
        handle_alter_configs, ApiKey.ALTER_CONFIGS, message, version, AlterConfigsResponse
    )
    return answer.responses[0].error_code


@pytest.fixture
def broker() -> BrokerFixture:
    fixture = BrokerFixture(settings={"log.retention.ms": "1000"})
    fixture.publish_topic("t")
    return fixture


# Describing


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_has_its_overrides_over_the_brokers_values(
    broker: BrokerFixture, version: int
) -> None:
    broker.publish_configs(ConfigResourceType.TOPIC, "t", {"segment.bytes": "2000"})
    result = describe(broker, TOPIC, "t", version=version, synonyms=True)
    rows = {row.name: row for row in result.configs}
    assert (rows["segment.bytes"].value, rows["segment.bytes"].config_source) == ("2000", 1)
    assert (rows["retention.ms"].value, rows["retention.ms"].config_source) == ("1000", 4)
    first = rows["retention.ms"].synonyms[0]
    assert (first.name, first.value, first.source) == ("log.retention.ms", "1000", 4)
    assert not any(row.read_only for row in result.configs)
    assert rows["retention.ms"].config_type == (5 if version >= 3 else 0)
    assert bool(rows["retention.ms"].documentation) == (version >= 3)


def test_synonyms_only_on_request_and_single_keys(broker: BrokerFixture) -> None:
    result = describe(broker, TOPIC, "t", ["retention.ms", "no.such.key"])
    assert [(row.name, row.synonyms) for row in result.configs] == [("retention.ms", ())]


def test_an_empty_list_of_keys_is_all_of_them(broker: BrokerFixture) -> None:
    assert describe(broker, TOPIC, "t", []).configs == describe(broker, TOPIC, "t").configs


def test_this_broker(broker: BrokerFixture) -> None:
    rows = {row.name: row for row in describe(broker, BROKER, "0").configs}
    assert rows["broker.id"].read_only
    assert rows["log.retention.ms"].value == "1000"
    assert not rows["log.retention.ms"].read_only
    sensitive = [row for row in rows.values() if row.is_sensitive]
    assert sensitive
    assert all(row.value is None for row in sensitive)


def test_the_broker_without_a_name_has_the_dynamic_defaults_that_are_set(
    broker: BrokerFixture,
) -> None:
    assert describe(broker, BROKER, "").configs == ()
    broker.settings = broker.settings.with_dynamic(
        SettingSource.DYNAMIC_DEFAULT, {"log.segment.bytes": "5000"}
    )
    [row] = describe(broker, BROKER, "").configs
    assert (row.name, row.value, row.config_source) == ("log.segment.bytes", "5000", 3)


def test_loggers_have_the_level_that_counts(broker: BrokerFixture) -> None:
    broker.loggers.getLogger("odradek.network").setLevel(5)
    broker.loggers.getLogger("odradek.broker.dispatch")
    result = describe(broker, LOGGER, "0")
    assert [(row.name, row.value, row.config_source) for row in result.configs] == [
        ("root", "WARN", 6),
        ("odradek", "WARN", 6),
        ("odradek.broker", "WARN", 6),
        ("odradek.broker.dispatch", "WARN", 6),
        ("odradek.network", "TRACE", 6),
    ]


def test_groups_have_what_is_set_for_them(broker: BrokerFixture) -> None:
    broker.publish_configs(ConfigResourceType.GROUP, "g", {"b": "1", "a": "2"})
    rows = describe(broker, GROUP, "g").configs
    assert [(row.name, row.value, row.config_source) for row in rows] == [
        ("a", "2", 8),
        ("b", "1", 8),
    ]


def test_client_metrics_have_defaults_and_what_is_set(broker: BrokerFixture) -> None:
    broker.publish_configs(
        ConfigResourceType.CLIENT_METRICS, "m", {"metrics": "a.b,c", "interval.ms": "100"}
    )
    rows = describe(broker, METRICS, "m").configs
    assert [(row.name, row.value, row.config_source) for row in rows] == [
        ("interval.ms", "100", 7),
        ("match", "", 5),
        ("metrics", "a.b,c", 7),
    ]
    assert {row.config_source for row in describe(broker, METRICS, "other").configs} == {5}


def test_stored_client_metrics_that_make_no_sense_show_the_defaults(broker: BrokerFixture) -> None:
    broker.publish_configs(ConfigResourceType.CLIENT_METRICS, "m", {"interval.ms": "soon"})
    assert {row.config_source for row in describe(broker, METRICS, "m").configs} == {5}


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no name!", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "1", ErrorCode.INVALID_REQUEST),
        (BROKER, "zero", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (METRICS, "", ErrorCode.INVALID_REQUEST),
        (0, "t", ErrorCode.INVALID_REQUEST),
    ],
)
def test_resources_that_are_not_here(
    broker: BrokerFixture, kind: int, name: str, code: ErrorCode
) -> None:
    result = describe(broker, kind, name)
    assert (result.error_code, result.configs) == (code, ())
    assert result.error_message
    assert alter(broker, (kind, name, [("a", SET, "b")])) == [code]


# Changing single settings


@pytest.mark.parametrize("version", [0, 1])
def test_set_and_delete(broker: BrokerFixture, version: int) -> None:
    broker.publish_configs(ConfigResourceType.TOPIC, "t", {"retention.ms": "7"})
    changes: list[tuple[str, int, str | None]] = [
        ("segment.bytes", SET, "2000"),
        ("retention.ms", DELETE, None),
    ]
    assert alter(broker, (TOPIC, "t", changes), version=version) == [0]
    [change] = broker.port.configs
    assert change.resource == ConfigResource(ConfigResourceType.TOPIC, "t")
    assert change.values == {"segment.bytes": "2000", "retention.ms": None}


def test_lists_grow_and_shrink_from_what_counts_now(broker: BrokerFixture) -> None:
    assert alter(broker, (TOPIC, "t", [("cleanup.policy", APPEND, "compact,delete")])) == [0]
    assert broker.port.configs[-1].values == {"cleanup.policy": "delete,compact"}
    broker.publish_configs(ConfigResourceType.TOPIC, "t", {"cleanup.policy": "delete,compact"})
    assert alter(broker, (TOPIC, "t", [("cleanup.policy", SUBTRACT, "delete")])) == [0]
    assert broker.port.configs[-1].values == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("segment.bytes", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("no.such.key", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG),
        ([("no.such.key", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("segment.bytes", SET, "many")], ErrorCode.INVALID_CONFIG),
        ([("segment.bytes", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("segment.bytes", 4, "1")], ErrorCode.INVALID_REQUEST),
        (
            [("segment.bytes", SET, "2000"), ("segment.bytes", DELETE, None)],
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_changes_that_cannot_be_made(
    broker: BrokerFixture, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    assert alter(broker, (TOPIC, "t", changes)) == [code]
    assert not broker.port.configs


def test_brokers(broker: BrokerFixture) -> None:
    changes: list[tuple[str, int, str | None]] = [("log.segment.bytes", SET, "5000")]
    assert alter(broker, (BROKER, "0", changes), (BROKER, "", changes)) == [0, 0]
    assert [change.resource.name for change in broker.port.configs] == ["0", ""]
    assert alter(broker, (BROKER, "0", [("broker.id", SET, "5")])) == [ErrorCode.INVALID_CONFIG]


@pytest.mark.parametrize(
    "name", ["ssl.keystore.location", "listener.name.plaintext.ssl.truststore.location"]
)
def test_no_keystore_is_stored_for_a_broker_without_tls(broker: BrokerFixture, name: str) -> None:
    assert alter(broker, (BROKER, "0", [(name, SET, "/etc/passwd")])) == [ErrorCode.INVALID_CONFIG]
    assert broker.port.configs == []


def test_one_resources_failure_leaves_the_others_alone(broker: BrokerFixture) -> None:
    good: list[tuple[str, int, str | None]] = [("segment.bytes", SET, "2000")]
    bad: list[tuple[str, int, str | None]] = [("segment.bytes", SET, "-1")]
    broker.publish_topic("u", number=2)
    broker.port.codes = [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR]
    result = alter(broker, (BROKER, "9", good), (TOPIC, "t", good), (TOPIC, "u", good))
    assert result == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.UNKNOWN_SERVER_ERROR]
    assert alter(broker, (TOPIC, "t", bad), (TOPIC, "u", good)) == [ErrorCode.INVALID_CONFIG, 0]


def test_a_resource_that_comes_twice_is_refused_both_times(broker: BrokerFixture) -> None:
    good: list[tuple[str, int, str | None]] = [("segment.bytes", SET, "2000")]
    result = alter(broker, (TOPIC, "t", good), (TOPIC, "t", good))
    assert result == [ErrorCode.INVALID_REQUEST] * 2


def test_validation_alone_changes_nothing(broker: BrokerFixture) -> None:
    broker.loggers.getLogger("odradek")
    result = alter(
        broker,
        (TOPIC, "t", [("segment.bytes", SET, "2000")]),
        (LOGGER, "0", [("odradek", SET, "DEBUG")]),
        validate_only=True,
    )
    assert result == [0, 0]
    assert not broker.port.configs
    assert broker.loggers.getLogger("odradek").level == logging.NOTSET


def test_groups_cannot_be_changed(broker: BrokerFixture) -> None:
    assert alter(broker, (GROUP, "g", [("a", SET, "b")])) == [ErrorCode.INVALID_REQUEST]


def test_client_metrics_are_stored(broker: BrokerFixture) -> None:
    """Set, appended to, taken away; kept under their own kind of resource."""
    resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, "m")
    match = r"client_id=(?<app>a)\p{L}+,client_software_name=.*"
    changes: list[tuple[str, int, str | None]] = [
        ("metrics", SET, "*"),
        ("interval.ms", SET, "3600000"),
        ("match", SET, match),
    ]
    assert alter(broker, (METRICS, "m", changes)) == [0]
    assert broker.port.configs == [
        ConfigSet(resource, {"metrics": "*", "interval.ms": "3600000", "match": match})
    ]
    broker.publish_configs(ConfigResourceType.CLIENT_METRICS, "m", {"metrics": "a"})
    assert alter(broker, (METRICS, "m", [("metrics", APPEND, "b"), ("match", DELETE, None)])) == [0]
    assert broker.port.configs[-1] == ConfigSet(resource, {"metrics": "a,b", "match": None})


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("unknown", "1", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "soon", ErrorCode.INVALID_CONFIG),
        ("match", "client_id", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a=b", ErrorCode.INVALID_CONFIG),
        ("match", "client_height=1", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a,client_id=(", ErrorCode.INVALID_CONFIG),
    ],
)
def test_client_metrics_that_are_refused(
    broker: BrokerFixture, name: str, value: str, code: ErrorCode
) -> None:
    assert alter(broker, (METRICS, "m", [(name, SET, value)])) == [code]
    assert not broker.port.configs


def test_levels_of_loggers_are_set_at_once(broker: BrokerFixture) -> None:
    logger = broker.loggers.getLogger("odradek.network")
    assert alter(broker, (LOGGER, "0", [("odradek.network", SET, "TRACE")])) == [0]
    assert logger.level == 5
    assert alter(broker, (LOGGER, "0", [("odradek", SET, "ERROR"), ("root", SET, "FATAL")])) == [0]
    assert broker.loggers.getLogger("odradek").level == logging.ERROR
    assert broker.loggers.root.level == logging.CRITICAL
    assert alter(broker, (LOGGER, "0", [("odradek.network", DELETE, None)])) == [0]
    assert logger.getEffectiveLevel() == logging.ERROR
    assert not broker.port.configs


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("odradek", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (("nobody", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (("odradek", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_levels_that_cannot_be_set(
    broker: BrokerFixture, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    broker.loggers.getLogger("odradek")
    assert alter(broker, (LOGGER, "0", [("root", SET, "INFO"), change][change[0] == "root" :])) == [
        code
    ]
    assert broker.loggers.root.level == logging.WARNING


# Replacing all settings


@pytest.mark.parametrize("version", range(3))
def test_what_is_not_named_goes_back_to_its_default(broker: BrokerFixture, version: int) -> None:
    broker.publish_configs(
        ConfigResourceType.TOPIC, "t", {"retention.ms": "7", "segment.bytes": "2000"}
    )
    assert replace(broker, TOPIC, "t", version, segment_bytes="3000") == 0
    [change] = broker.port.configs
    assert change.values == {"retention.ms": None, "segment.bytes": "3000"}


def test_replacements_that_cannot_be_made(broker: BrokerFixture) -> None:
    assert replace(broker, TOPIC, "t", segment_bytes=None) == ErrorCode.INVALID_REQUEST
    assert replace(broker, TOPIC, "t", segment_bytes="x") == ErrorCode.INVALID_CONFIG
    assert replace(broker, TOPIC, "missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replace(broker, LOGGER, "0", root="INFO") == ErrorCode.INVALID_REQUEST
    assert not broker.port.configs


def test_a_list_is_changed_by_what_is_stored_not_by_what_this_broker_knows() -> None:
    """02 §12: another request's item that this broker has not heard of stays."""
    broker = BrokerFixture()
    broker.publish_topic("t")
    resource = ConfigResource(ConfigResourceType.TOPIC, "t")
    broker.port = FakeControllerPort(lambda: {resource: {"cleanup.policy": "compact"}})
    broker.context = dataclasses.replace(broker.context, controller_port=broker.port)
    assert alter(broker, (TOPIC, "t", [("cleanup.policy", APPEND, "delete")])) == [0]
    assert broker.port.configs[-1].values == {"cleanup.policy": "compact,delete"}
    assert replace(broker, TOPIC, "t", retention_ms="1") == 0
    assert broker.port.configs[-1].values == {"cleanup.policy": None, "retention.ms": "1"}


def test_many_resources_are_few_writes_and_too_many_are_refused() -> None:
    """02 §12."""
    broker = BrokerFixture()
    change: list[tuple[str, int, str | None]] = [("metrics", SET, "a")]
    resources = [(METRICS, f"m{number}", change) for number in range(1_001)]
    assert alter(broker, *resources[:60]) == [0] * 60
    assert broker.port.writes == [20] * 3
    assert set(alter(broker, *resources)) == {ErrorCode.POLICY_VIOLATION}
    assert broker.port.writes == [20] * 3


def test_a_change_does_not_show_its_value() -> None:
    assert "xyzzy" not in repr(KeyChange("ssl.key.password", SET, "xyzzy"))
