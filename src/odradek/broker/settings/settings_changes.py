"""Application of changed settings, from the published image to the parts of a running broker."""

import logging
from collections.abc import Callable, Generator, Iterator, Mapping

from odradek.broker.config import BrokerSettings
from odradek.broker.parts.storage import Storage
from odradek.broker.quotas.client_quotas import ClientQuotas
from odradek.config import SettingSource
from odradek.errors import ConfigError
from odradek.metadata.delta import ClusterDelta
from odradek.metadata.image import ClusterImage
from odradek.protocol.enums import ConfigResourceType
from odradek.replication import ReplicaManager

__all__ = ["SettingsChanges"]

logger = logging.getLogger(__name__)


class SettingsChanges:
    """The effective settings of one broker, and their application to its parts.

    Args:
        settings: The settings the broker starts with.
        storage: Its logs, made with settings of topics and of brokers.
        quotas: The client quotas.
        replicas: Its partitions.

    Attributes:
        current: The effective settings, dynamic changes included.
        on_unclean_enabled: Called with each changed topic that permits unclean elections.
        on_broker_settings: Called with the settings before and after a change.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        storage: Storage,
        quotas: ClientQuotas,
        replicas: ReplicaManager,
    ) -> None:
        self.current = settings
        self._logs = storage.logs
        self._topic_configs = storage.topic_configs
        self._quotas = quotas
        self._replicas = replicas
        self.on_unclean_enabled: Callable[[str], None] = lambda _topic: None
        self.on_broker_settings: Callable[[BrokerSettings, BrokerSettings], None] = (
            lambda _before, _after: None
        )

    def apply(self, delta: ClusterDelta, image: ClusterImage) -> Iterator[None]:
        """Applies changed settings, in small steps; all logs are visited once, at the end."""
        changed: set[str] = set()
        is_broker_changed = False
        for resource in delta.configs:
            overrides = image.configs.get(resource, {})
            if resource.type is ConfigResourceType.TOPIC:
                changed.add(resource.name)
                effective = self._topic_configs.apply(resource.name, overrides)
                if effective.unclean_leader_election:
                    self.on_unclean_enabled(resource.name)
            elif resource.type is ConfigResourceType.BROKER:
                is_broker_changed |= yield from self._apply_to_broker(resource.name, overrides)
            yield
        if delta.quotas:
            self._quotas.update(image.quotas)
        if changed or is_broker_changed:

            def is_changed(topic: str) -> bool:
                return is_broker_changed or topic in changed

            yield from self._logs.renew_configs(is_changed)
            yield from self._replicas.renew_settings(is_changed)

    def _apply_to_broker(
        self, name: str, overrides: Mapping[str, str]
    ) -> Generator[None, None, bool]:
        """Applies settings of brokers; returns whether any changed here."""
        if name not in ("", str(self.current.node.id)):
            return False
        source = SettingSource.DYNAMIC_BROKER if name else SettingSource.DYNAMIC_DEFAULT
        before = self.current
        try:
            self.current = before.with_dynamic(source, overrides, is_stored=True)
        except ConfigError as error:
            logger.error("dynamic configuration is not applied: %s", error)  # noqa: TRY400
            return False
        self.on_broker_settings(before, self.current)
        self._logs.use_recovery_threads(self.current.log.recovery_threads)
        self._logs.verify_transactions(is_on=self.current.log.transaction_verification_enabled)
        self._logs.cleaner.config = self.current.cleaner
        yield from self._topic_configs.renew(self.current)
        return True
