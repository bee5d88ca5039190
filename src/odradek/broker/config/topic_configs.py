"""The effective settings of each topic: the topic's own over the broker's defaults.

Two entry points, for two kinds of callers:

- `check` is for a request that sets overrides: one that cannot be used is refused with
  INVALID_CONFIG, naming key, value and reason.
- `apply` is for overrides that the cluster has stored: one that this broker cannot use, for example
  of a newer version, is left out with one line in the log, and the others take effect.

Equal overrides share one result, so a thousand topics without overrides have one.
"""

import logging
from collections.abc import Iterator, Mapping

from odradek.broker.config.broker import BrokerSettings
from odradek.broker.config.describe import ConfigRow, row_of
from odradek.broker.config.topic import TOPIC_DEFINITION, TopicConfig, TopicDefaults
from odradek.config import Kind, Settings, SettingSource
from odradek.config.declaration import keys_of
from odradek.errors import ApiError, ConfigError, ErrorCode
from odradek.lazy_dataclass import dataclass
from odradek.storage.log.config import LogConfig

__all__ = ["EffectiveTopicConfig", "TopicConfigs"]

logger = logging.getLogger(__name__)

# Distinct sets of overrides in the cache; beyond it the cache is cleared.
MAX_CACHED_RESULTS = 1_000
# The broker's names of the settings that topics inherit.
_BROKERS = frozenset(key.name for key in keys_of(TopicDefaults).values())

_SOURCES = (
    SettingSource.FILE,
    SettingSource.ENVIRONMENT,
    SettingSource.COMMAND_LINE,
    SettingSource.DYNAMIC_DEFAULT,
    SettingSource.DYNAMIC_BROKER,
)


@dataclass(frozen=True, slots=True)
class EffectiveTopicConfig:
    """The effective settings of a topic."""

    topic: TopicConfig
    log: LogConfig

    @property
    def min_insync_replicas(self) -> int:
        return self.topic.min_insync_replicas

    @property
    def unclean_leader_election(self) -> bool:
        return self.topic.unclean_leader_election

    @property
    def compression_type(self) -> str:
        return self.topic.compression_type


class TopicConfigs:
    """The settings of all topics of a broker.

    Args:
        broker: Has the defaults.
    """

    def __init__(self, broker: BrokerSettings) -> None:
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._effective: dict[str, EffectiveTopicConfig] = {}
        self._results: dict[frozenset[tuple[str, str]], EffectiveTopicConfig] = {}
        self._base = Settings(TOPIC_DEFINITION)
        self._validate_compressed = True
        self.default = EffectiveTopicConfig(TopicConfig(), LogConfig())
        self.use_broker(broker)

    def use_broker(self, broker: BrokerSettings) -> None:
        """Applies new defaults to all topics."""
        for _ in self.renew(broker):
            pass

    def renew(self, broker: BrokerSettings) -> Iterator[None]:
        """Applies new defaults to the topics, one topic a step.

        A topic that is changed meanwhile gets them with its change.
        """
        self._base = Settings(TOPIC_DEFINITION, _layers_for_topics(broker.settings))
        self._validate_compressed = broker.log.validate_compressed
        self._results.clear()
        self.default = self._resolve({})
        for topic in list(self._overrides):
            overrides = self._overrides.get(topic)
            if overrides is not None:
                self._effective[topic] = self._tolerant(topic, overrides)
            yield

    def apply(self, topic: str, overrides: Mapping[str, str]) -> EffectiveTopicConfig:
        """Sets the overrides of a topic; an empty map, as for a deleted topic, removes them."""
        if not overrides:
            self._overrides.pop(topic, None)
            self._effective.pop(topic, None)
            return self.default
        self._overrides[topic] = overrides
        effective = self._effective[topic] = self._tolerant(topic, overrides)
        return effective

    def get(self, topic: str) -> EffectiveTopicConfig:
        """The effective settings of a topic, known or not."""
        return self._effective.get(topic, self.default)

    def log_config(self, topic: str) -> LogConfig:
        return self._effective.get(topic, self.default).log

    def min_insync_replicas(self, topic: str) -> int:
        return self._effective.get(topic, self.default).topic.min_insync_replicas

    def check(self, overrides: Mapping[str, str | None]) -> EffectiveTopicConfig:
        """The effective settings of a topic with these overrides.

        Raises:
            ApiError: INVALID_CONFIG, naming key, value and reason.
        """
        given: dict[str, str] = {}
        for name, value in overrides.items():
            if value is None:
                raise ApiError(ErrorCode.INVALID_CONFIG, f"{name}: a topic's setting needs a value")
            given[name] = value
        try:
            return self._resolve(given)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None

    def rows(self, overrides: Mapping[str, str]) -> list[ConfigRow]:
        """Every setting of a topic with these overrides, for DescribeConfigs."""
        settings = self._base.with_layer(SettingSource.DYNAMIC_TOPIC, self._usable(overrides))
        names = sorted(key.name for key in TOPIC_DEFINITION.fields[TopicConfig].values())
        found = (settings.get(name) for name in names)
        return [row_of(setting, with_defaults=_BROKERS) for setting in found if setting.levels]

    @staticmethod
    def kind(name: str) -> Kind | None:
        """The kind of a topic's key; None if there is no such key."""
        key = TOPIC_DEFINITION.keys.get(name)
        is_topics = key is not None and key in TOPIC_DEFINITION.fields[TopicConfig].values()
        return key.kind if key is not None and is_topics else None

    def _resolve(self, overrides: Mapping[str, str]) -> EffectiveTopicConfig:
        identity = frozenset(overrides.items())
        known = self._results.get(identity)
        if known is not None:
            return known
        _refuse_brokers_keys(overrides)
        settings = self._base.with_dynamic(
            SettingSource.DYNAMIC_TOPIC, overrides, config_class=TopicConfig
        )
        topic = settings.build(TopicConfig)
        log = topic.log_config(validate_compressed=self._validate_compressed)
        if len(self._results) >= MAX_CACHED_RESULTS:
            self._results.clear()
        result = self._results[identity] = EffectiveTopicConfig(topic, log)
        return result

    def _tolerant(self, topic: str, overrides: Mapping[str, str]) -> EffectiveTopicConfig:
        try:
            return self._resolve(overrides)
        except ConfigError as error:
            # An operator's mistake: no traceback.
            logger.error("Topic %s has a setting that is ignored here: %s", topic, error)  # noqa: TRY400
            return self._resolve(self._usable(overrides))

    def _usable(self, overrides: Mapping[str, str]) -> Mapping[str, str]:
        """The overrides without those that cannot be used."""
        try:
            self._resolve(overrides)
        except ConfigError:
            usable: dict[str, str] = {}
            for name in sorted(overrides):
                try:
                    self._resolve(usable | {name: overrides[name]})
                except ConfigError:
                    continue
                usable[name] = overrides[name]
            return usable
        return overrides


def _layers_for_topics(settings: Settings) -> dict[SettingSource, dict[str, object]]:
    """The values of each source for the broker's defaults of topics."""
    layers: dict[SettingSource, dict[str, object]] = {source: {} for source in _SOURCES}
    for key in TOPIC_DEFINITION.fields[TopicDefaults].values():
        for level in settings.get(key.name).levels:
            if level.source in layers:
                layers[level.source][level.name] = level.value
    return layers


def _refuse_brokers_keys(overrides: Mapping[str, str]) -> None:
    """Refuses the broker's name of a setting, with an error that has the topic's name of it."""
    topic_keys = TOPIC_DEFINITION.fields[TopicConfig].values()
    for name, value in overrides.items():
        key = TOPIC_DEFINITION.keys.get(name)
        if key is None or key in topic_keys:
            continue
        names = [
            topic_key.name
            for topic_key in topic_keys
            if any(weaker.name == name for weaker in topic_key.synonyms)
        ]
        raise ConfigError(name, value, f"is a broker's key; a topic has {' or '.join(names)}")
