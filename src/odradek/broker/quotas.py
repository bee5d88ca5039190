"""Client quotas: what each client used lately, and how long it has to keep still.

| quota        | counted                                    | by                                |
|--------------|--------------------------------------------|-----------------------------------|
| produce      | bytes of whole requests                    | sampled rate                      |
| fetch        | bytes of answers                           | sampled rate                      |
| request      | time of handlers and sending, in % of 1 s  | sampled rate, wait at most 1 sample |
| mutation     | partitions created or deleted              | token bucket                      |

Rules:

1. Who is counted together, and against which bound, is told in `odradek.broker.quota_entities`. A
   changed bound counts from the next request on; what was used stays known.
2. A request is answered at once with the time to wait, the larger of all that apply; afterwards its
   connection is not read for that time. Both are the caller's part.
3. A fetch that would have to wait is answered empty, so its bytes are not counted. A fetch of up to
   `max_fetch_bytes` always passes sooner or later.
4. Produce with acks=0 has no answer: its bytes count, its time does not.
5. Without any quota of its kind a request costs one look into a dict.

A bucket nobody used for an hour is forgotten.
"""

import heapq
from collections.abc import Mapping
from typing import Final, Protocol

from odradek.broker.config.components import QuotaSettings
from odradek.broker.quota_entities import Bucket, QuotaKey, resolve_quota
from odradek.broker.token_bucket import TokenBucket
from odradek.clock import Clock
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.image import QuotaEntity
from odradek.metrics import MetricName, MetricRegistry
from odradek.network.rate import SampledRate

__all__ = ["ClientQuotas", "MutationQuota", "QuotaClient"]

BUCKET_LIFETIME_MS: Final = 3_600_000

# Clients whose bucket and bound are remembered, per quota; beyond it the memory is cleared. Client
# ids come from outside.
MAX_RESOLVED_CLIENTS: Final = 10_000
# Buckets per quota; beyond it the one that was idle for longest goes.
MAX_BUCKETS: Final = 10_000

_METRIC_TYPES: Final = {
    QuotaKey.PRODUCE: ("Produce", "byte-rate"),
    QuotaKey.FETCH: ("Fetch", "byte-rate"),
    QuotaKey.REQUEST: ("Request", "request-time"),
    QuotaKey.CONTROLLER_MUTATION: ("ControllerMutation", "mutation-rate"),
}


class QuotaClient(Protocol):
    """Who sent a request; requests of the network layer are such."""

    @property
    def quota_user(self) -> str: ...

    @property
    def quota_client_id(self) -> str: ...


