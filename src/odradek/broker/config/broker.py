"""The broker's settings: their sources, their checks, and the settings of each part.

Sources from weak to strong: defaults, the properties file, variables ``ODRADEK_…``, the command
line, and changes of administrators on the running broker. A value that cannot be used prevents the
start, with an error that names key, value and reason. An unknown name is a warning: with a
suggestion if it looks misspelt, or with "has no effect here" if it is a key of Kafka. A key that
promises protection which the broker does not provide prevents the start, too (`protection`).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from odradek.broker.config.alone import more_brokers_needed
from odradek.broker.config.components import (
    InternalTopicsSettings,
    LogSettings,
    NodeSettings,
    ObservabilitySettings,
    QuotaSettings,
    ReplicationSettings,
    RequestSettings,
    TopicSettings,
)
from odradek.broker.config.describe import ConfigRow, lowered_row, row_of, row_of_level
from odradek.broker.config.inter_broker import InterBrokerSettings
from odradek.broker.config.kafka_keys import KAFKA_KEYS
from odradek.broker.config.protection import base_names, check_given_tls, check_protection
from odradek.broker.config.tls import TlsSettings
from odradek.broker.config.topic import TopicDefaults
from odradek.broker.config.zookeeper import ZooKeeperSettings, with_java_properties
from odradek.config import Definition, Settings, SettingSource, UnknownKey, Value, parse_properties
from odradek.config.declaration import LISTENER_PREFIX, environment_name
from odradek.controller.config import LeaderBalanceConfig
from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.transaction.config import TransactionCoordinatorConfig
from odradek.errors import ConfigError
from odradek.lazy_dataclass import dataclass
from odradek.network.config import ListenerLimits, NetworkConfig, check_resize
from odradek.storage.cleaning.config import CleanerConfig

__all__ = [
    "BROKER_DEFINITION",
    "RESERVED_VARIABLES",
    "BrokerSettings",
    "load_broker_settings",
    "read_properties",
    "unknown_settings",
    "warning_of",
]

BROKER_DEFINITION: Final = Definition(
    NodeSettings,
    ZooKeeperSettings,
    NetworkConfig,
    TlsSettings,
    LogSettings,
    CleanerConfig,
    TopicDefaults,
    TopicSettings,
    InternalTopicsSettings,
    ReplicationSettings,
    InterBrokerSettings,
    RequestSettings,
    QuotaSettings,
    ObservabilitySettings,
    LeaderBalanceConfig,
    GroupCoordinatorConfig,
    TransactionCoordinatorConfig,
)

# Variables of the project's tools.
RESERVED_VARIABLES: Final = (
    "ODRADEK_BOOTSTRAP_SERVERS",
    "ODRADEK_CACHE",
    "ODRADEK_PROFILE",
    "ODRADEK_PURE",
)

_RESIZABLE: Final = ("num.network.threads", "num.io.threads")

# Fields of InternalTopicsSettings that a small cluster lowers unless they are set.
_LOWERED: Final = {
    "offsets.topic.replication.factor": "offsets_replication_factor",
    "transaction.state.log.replication.factor": "transactions_replication_factor",
    "transaction.state.log.min.isr": "transactions_min_isr",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The settings of each part of the broker. Replaced as a whole on a change."""

    settings: Settings
    # For the operator, at the start: unknown names, and demands for more than one broker.
    warnings: tuple[str, ...]
    node: NodeSettings
    zookeeper: ZooKeeperSettings
    network: NetworkConfig
    log: LogSettings
    cleaner: CleanerConfig
    topic_defaults: TopicDefaults
    topics: TopicSettings
    internal_topics: InternalTopicsSettings
    replication: ReplicationSettings
    inter_broker: InterBrokerSettings
    requests: RequestSettings
    quotas: QuotaSettings
    observability: ObservabilitySettings
    leader_balance: LeaderBalanceConfig
    groups: GroupCoordinatorConfig
    transactions: TransactionCoordinatorConfig
    # The id of a broker that has none in its settings; None: not known yet, or not needed.
    drawn_id: int | None = None

    @classmethod
    def from_settings(cls, settings: Settings, drawn_id: int | None = None) -> "BrokerSettings":
        """Builds the parts.

        Args:
            drawn_id: The id that the broker uses if the settings have none.

        Raises:
            ConfigError: A combination of values does not work.
        """
        node = settings.build(NodeSettings)
        if drawn_id is not None and node.broker_id < 0:
            node = replace(node, broker_id=drawn_id)
        zookeeper = settings.build(ZooKeeperSettings)
        built = cls(
            settings=settings,
            warnings=_warnings(settings, is_alone=zookeeper.connect is None),
            node=node,
            zookeeper=zookeeper,
            network=settings.build(NetworkConfig),
            log=settings.build(LogSettings),
            cleaner=settings.build(CleanerConfig),
            topic_defaults=settings.build(TopicDefaults),
            topics=settings.build(TopicSettings),
            internal_topics=settings.build(InternalTopicsSettings),
            replication=settings.build(ReplicationSettings),
            inter_broker=settings.build(InterBrokerSettings),
            requests=settings.build(RequestSettings),
            quotas=settings.build(QuotaSettings),
            observability=settings.build(ObservabilitySettings),
            leader_balance=settings.build(LeaderBalanceConfig),
            groups=settings.build(GroupCoordinatorConfig),
            transactions=settings.build(TransactionCoordinatorConfig),
            drawn_id=drawn_id,
        )
        built._check_ids()
        built._check_listeners()
        return built

    def tls(self, listener: str) -> TlsSettings:
        """The TLS settings of a listener."""
        return self.settings.build(TlsSettings, listener=listener)

    def listener_limits(self, listener: str) -> ListenerLimits:
        """The limits of a listener alone, beside those of the whole broker."""

        def own(name: str, unlimited: int) -> int:
            level = self.settings.get(name, listener=listener).levels[0]
            value = level.value if level.name.startswith(LISTENER_PREFIX) else unlimited
            assert isinstance(value, int)
            return value

        defaults = ListenerLimits()
        return ListenerLimits(
            max_connections=own("max.connections", defaults.max_connections),
            max_creation_rate=own("max.connection.creation.rate", defaults.max_creation_rate),
        )

    def fitting_internal_topics(
        self, broker_count: int, *, on_lowered: Callable[[str], None] = lambda _line: None
    ) -> InternalTopicsSettings:
        """The internal topics' settings for a cluster of so many brokers.

        A factor that is not set is lowered to the number of brokers; otherwise no group would work
        on a fresh single broker. A factor that the operator set is never lowered.

        Args:
            on_lowered: Called with a line for the log if a factor was lowered.
        """
        unset = {
            key: field
            for key, field in _LOWERED.items()
            if self.settings.get(key).source is SettingSource.DEFAULT
            and getattr(self.internal_topics, field) > broker_count
        }
        if unset:
            on_lowered(
                f"{', '.join(unset)}: not set, lowered to {broker_count}, the number of brokers"
            )
        return self.internal_topics.lowered(tuple(unset.values()), broker_count)

    def with_dynamic(
        self, source: SettingSource, raw: Mapping[str, object], *, is_stored: bool = False
    ) -> "BrokerSettings":
        """The settings with all values of one dynamic source replaced.

        Args:
            source: DYNAMIC_DEFAULT for the cluster's, DYNAMIC_BROKER for this broker's.
            is_stored: Whether the values are already stored. Then any difference from the settings
                before is accepted, which may be those of a broker that was down.

        Raises:
            ConfigError: A key is unknown or fixed, or a value or combination does not work.
        """
        changed = self.settings.with_dynamic(source, raw)
        for name in () if is_stored else _RESIZABLE:
            old, new = self.settings.get(name).value, changed.get(name).value
            assert isinstance(old, int)
            assert isinstance(new, int)
            check_resize(name, old, new)
        return BrokerSettings.from_settings(changed, self.drawn_id)

    def with_id(self, broker_id: int) -> "BrokerSettings":
        """The settings with the id that the broker has drawn."""
        return BrokerSettings.from_settings(self.settings, broker_id)

    def rows(self, broker_count: int = 1) -> list[ConfigRow]:
        """Every key of this broker, for DescribeConfigs.

        Args:
            broker_count: The brokers of the cluster: internal topics have no more replicas.
        """
        names = sorted(self.settings.definition.keys)
        # The effective values, not those of a larger cluster.
        fitting = self.fitting_internal_topics(broker_count)
        rows: list[ConfigRow] = []
        for name in names:
            setting = self.settings.get(name)
            field = _LOWERED.get(name)
            value = setting.value if field is None else getattr(fitting, field)
            rows.append(row_of(setting) if value == setting.value else lowered_row(setting, value))
        return rows

    def cluster_default_rows(self) -> list[ConfigRow]:
        """The overrides for all brokers, for DescribeConfigs of the broker ""."""
        rows: list[ConfigRow] = []
        for name in sorted(self.settings.definition.keys):
            setting = self.settings.get(name)
            rows += [
                row_of_level(setting.key, level)
                for level in setting.levels
                if level.source is SettingSource.DYNAMIC_DEFAULT and level.name == name
            ]
        return rows

    def _check_ids(self) -> None:
        given: dict[SettingSource, Value] = {}
        for level in self.settings.get("broker.id").levels:
            # The stronger name comes first; files for Kafka often have the same number twice.
            if given.setdefault(level.source, level.value) != level.value:
                raise ConfigError(
                    level.name, level.value, f"broker.id is {given[level.source]}; set one of them"
                )
        if self.zookeeper.connect is None or self.drawn_id is not None:
            return
        node = self.node
        if node.id_generation_enabled and node.broker_id > node.reserved_max_id:
            raise ConfigError(
                "broker.id",
                node.broker_id,
                f"above reserved.broker.max.id = {node.reserved_max_id} ids are drawn by brokers"
                " that have none; take a smaller one, or raise reserved.broker.max.id",
            )
        if not node.id_generation_enabled and node.broker_id < 0:
            raise ConfigError(
                "broker.id",
                node.broker_id,
                "broker.id.generation.enable=false: give the broker an id from 0 on",
            )

    def _check_listeners(self) -> None:
        network = self.network
        planes = network.planes
        for endpoint in network.endpoints:
            protocol = endpoint.security_protocol
            if protocol.uses_sasl:
                raise ConfigError(
                    "listeners",
                    endpoint.connection_string,
                    f"{protocol.name} needs SASL, which is not supported yet; use SSL with"
                    " ssl.client.auth=required, or PLAINTEXT where only trusted machines are",
                )
            if protocol.uses_tls:
                self.tls(endpoint.listener).check_usable(endpoint.listener)
        if not planes.data:
            raise ConfigError(
                "control.plane.listener.name",
                network.control_plane_listener_name,
                "no listener is left for clients",
            )


def load_broker_settings(
    config_file: str | None,
    overrides: Mapping[str, object],
    environment: Mapping[str, str],
    *,
    instead_of_file: Mapping[str, str] = MappingProxyType({}),
) -> BrokerSettings:
    """Reads the settings a broker starts with.

    Args:
        config_file: A properties file; None for none.
        instead_of_file: Used if there is no file, with the strength of one.
        overrides: From the command line, by key.
        environment: All variables; those of other programs are ignored.

    Raises:
        ConfigError: The file cannot be read, or a value cannot be used.
    """
    settings = Settings.from_sources(
        BROKER_DEFINITION,
        file=instead_of_file if config_file is None else read_properties(config_file),
        environment=with_java_properties(environment),
        command_line=overrides,
        reserved_variables=RESERVED_VARIABLES,
    )
    check_protection(settings.unknown)
    loaded = BrokerSettings.from_settings(settings)
    check_given_tls(settings, loaded.network.endpoints)
    return loaded


def unknown_settings(given: Mapping[str, object]) -> dict[str, str | None]:
    """The names that neither Odradek nor Kafka has, each with the nearest that Odradek has."""
    settings = Settings(BROKER_DEFINITION, {SettingSource.COMMAND_LINE: given})
    return {
        one.name: one.suggestion
        for one in settings.unknown
        if not any(key in KAFKA_KEYS for key in base_names(one.name))
    }


def read_properties(path: str) -> Mapping[str, str]:
    """The keys and values of a properties file.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise ConfigError("configuration file", path, error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            "configuration file", path, f"byte {error.start} is not UTF-8: {error.reason}"
        ) from None
    return parse_properties(text)


def _warnings(settings: Settings, *, is_alone: bool) -> tuple[str, ...]:
    unserved = more_brokers_needed(settings) if is_alone else ()
    return (*map(warning_of, settings.unknown), *(why for _, why in unserved))


def warning_of(unknown: UnknownKey) -> str:
    """The line about a name that no component declares."""
    name = unknown.name
    if unknown.source is SettingSource.ENVIRONMENT:
        is_kafkas = any(environment_name(key) == name for key in KAFKA_KEYS)
    else:
        is_kafkas = any(key in KAFKA_KEYS for key in base_names(name))
    return f"{name}: has no effect here" if is_kafkas else str(unknown)
