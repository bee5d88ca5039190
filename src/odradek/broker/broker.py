"""A broker, put together: builds, starts and stops everything, in order.

Start, each step on what the ones before gave:

1. the store opens, with the nodes that must exist, and the cluster's id is compared;
2. configs of the cluster are read: topics' settings count from the first log on;
3. logs are loaded;
4. listeners are bound, so that ports are known; clients connect, and wait;
5. the broker registers, and its controller stands for election;
6. the first metadata is published: clients are served, and `start` returns.

Stop runs the other way round: no more requests, controller resigns, logs closed in order and marked
clean, the store last.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from random import SystemRandom
from typing import Any

from odradek.broker.background import LoopTasks
from odradek.broker.config import BrokerSettings, TopicConfigs
from odradek.broker.context import BrokerContext
from odradek.broker.dispatch import StartGate, dispatch
from odradek.broker.edge import MetadataEdge
from odradek.broker.identity import check_directories, load_cluster_id
from odradek.broker.metadata_waiter import MetadataWaiter
from odradek.broker.observability import ObservabilityServer
from odradek.broker.producer_ids import ProducerIdAllocator
from odradek.broker.publisher import Publisher
from odradek.broker.quotas import ClientQuotas
from odradek.broker.tls import server_context
from odradek.broker.topic_creation import AutoTopicCreator
from odradek.clock import SystemClock
from odradek.controller import Controller, LocalChannel, StorePersistence
from odradek.coordination.embedded import EmbeddedEngine
from odradek.files import Disk
from odradek.metadata.cache import MetadataCache
from odradek.metadata.delta import ClusterDelta, ImageDelta, LocalDelta
from odradek.metadata.image import Broker as BrokerImage
from odradek.metadata.image import ClusterImage, ConfigResourceType
from odradek.metrics import MetricRegistry
from odradek.model import Endpoint, SecurityProtocol
from odradek.network.authentication import ListenerSecurity
from odradek.network.endpoint import EndPoint, published_endpoints
from odradek.network.socket_server import SocketServer
from odradek.purgatory import DelayedOperationPurgatory, SystemTimer
from odradek.replication import Purgatories, ReplicaManager, ReplicaManagerConfig, ReplicationStats
from odradek.replication.fetch_session import FetchSessionCache
from odradek.storage.log import LogServices
from odradek.storage.log_manager import LogManager
from odradek.storage.open_files import raise_open_file_limit

__all__ = ["Broker"]

logger = logging.getLogger(__name__)
