"""The state that requests use: logs, partitions, coordinators, quotas, as the publisher sets it."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

from odradek.broker.parts.base import Base
from odradek.broker.parts.coordinators import build_groups, build_transactions
from odradek.broker.parts.replication import Replication, build_replication
from odradek.broker.parts.storage import Storage, build_storage
from odradek.broker.producer_ids import ProducerIdAllocator
from odradek.broker.publisher import Publisher
from odradek.broker.quotas.client_quotas import ClientQuotas
from odradek.broker.settings.settings_changes import SettingsChanges
from odradek.broker.transactions.local_markers import LocalMarkers
from odradek.broker.transactions.marker_routes import MarkerRoutes
from odradek.coordinator.group.commit_batching import WakeUps
from odradek.coordinator.group.coordinator import GroupCoordinator
from odradek.coordinator.transaction.coordinator import TransactionCoordinator
from odradek.errors import StorageError
from odradek.lazy_dataclass import dataclass
from odradek.metadata.cache import MetadataCache
from odradek.metadata.delta import LocalDelta
from odradek.metadata.ports import ControllerPort
from odradek.storage.directories.log_directory import LogDirectory
from odradek.tasks import Tasks

__all__ = ["State", "build_state"]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state that requests use."""

    cache: MetadataCache
    storage: Storage
    replication: Replication
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    markers: LocalMarkers
    marker_routes: MarkerRoutes
    producer_ids: ProducerIdAllocator
    quotas: ClientQuotas
    changes: SettingsChanges
    publisher: Publisher

    def close_logs(self, broker_epoch: int) -> None:
        """Closes the logs in order, when no other part uses them."""
        with contextlib.suppress(StorageError):
            self.replication.replicas.checkpoint_high_watermarks()
        self.storage.logs.shutdown(broker_epoch)


@contextlib.contextmanager
def build_state(
    base: Base,
    executor: Executor,
    port: ControllerPort,
    tasks: Tasks,
    wake_ups: WakeUps,
    on_all_directories_failed: Callable[[], None],
) -> Iterator[State]:
    """Builds the state, still empty; on exit waiting requests are ended."""
    settings, around = base.settings, base.around
    cache = MetadataCache(settings.node.id)

    def on_directory_failed(directory: LogDirectory) -> None:
        replicas.handle_directory_failure(directory)
        tasks.spawn(port.report_log_dir_failure())

    with contextlib.ExitStack() as stack:
        storage = stack.enter_context(
            build_storage(
                base,
                executor,
                on_directory_failed=on_directory_failed,
                on_all_directories_failed=on_all_directories_failed,
            )
        )
        replication = stack.enter_context(build_replication(base, storage, cache))
        replicas = replication.replicas
        groups = stack.enter_context(build_groups(base, replicas, cache, tasks, wake_ups))
        producer_ids = ProducerIdAllocator(port.allocate_producer_ids, tasks=tasks)
        markers = LocalMarkers(replicas, groups, clock=around.clock, tasks=tasks)
        routes = MarkerRoutes(settings.node.id, cache, markers)
        transactions = stack.enter_context(
            build_transactions(base, replicas, cache, producer_ids, routes, tasks)
        )

        def on_roles(delta: LocalDelta) -> None:
            groups.follow_leadership(delta, settings.node.id)
            transactions.follow_leadership(delta, settings.node.id)

        def on_deleted(topics: frozenset[str]) -> None:
            groups.forget_topics(topics)
            transactions.forget_topics(topics)

        quotas = ClientQuotas(settings.quotas, clock=around.clock, metrics=base.metrics)
        changes = SettingsChanges(settings, storage=storage, quotas=quotas, replicas=replicas)
        publisher = Publisher(
            cache,
            replicas,
            on_settings=changes.apply,
            on_roles=on_roles,
            on_published=replication.notify,
            on_deleted=on_deleted,
        )
        yield State(
            cache=cache,
            storage=storage,
            replication=replication,
            groups=groups,
            transactions=transactions,
            markers=markers,
            marker_routes=routes,
            producer_ids=producer_ids,
            quotas=quotas,
            changes=changes,
            publisher=publisher,
        )
