"""A session with a ZooKeeper ensemble: its links, its states, its requests under way.

::

    new ──► CONNECTED ── link broken ──► SUSPENDED ── another server accepts it ──► CONNECTED
                │                            │
                │ the loop was held for      │ the server says: expired
                │ the whole timeout          ▼
                └──────────────────────► LOST ── `before` ── new session ──► CONNECTED, `after`
                                           └── closed by its owner: stays

Rules:

1. A request is sent in state CONNECTED only. Its slot, of `max_in_flight`, is free again when it is
   answered or the link has broken. Answers come in the order of requests, and are used in the order
   they come, watches included, in the task that reads the link.
2. When the link breaks, a write under way ends in `ConnectionLost`; a read or `sync` is sent again
   on the next link. While SUSPENDED a write ends in `ConnectionLost` without being sent: it must
   not be executed later, when its caller has decided something else.
3. While no server can be reached the session stays SUSPENDED, for minutes if need be: only a server
   can say that it has expired, and without servers it does not expire.
4. Before anything is sent or used, `Liveness` is asked whether the loop was held for the session's
   timeout. Then the session is LOST, whatever the socket has: another broker may act in its place.
5. On a new link all watches are armed again before any request is sent.
6. A new session is CONNECTED when the session it follows has ended, if a server can be asked within
   a moment, and its own credentials are on disk: a kill after that costs the next life no wait.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

from odradek.clock import Clock
from odradek.coordination.store import SessionState, WatchEvent
from odradek.coordination.zookeeper.link import (
    NO_SESSION,
    Authentication,
    Credentials,
    Link,
    LinkBroken,
    LoginRefused,
    OpenStream,
    end_session,
)
from odradek.coordination.zookeeper.liveness import Liveness, Verdict
from odradek.coordination.zookeeper.servers import Server, ServerTurns
from odradek.coordination.zookeeper.session_metrics import SessionMetrics
from odradek.coordination.zookeeper.watch_registry import WatchRegistry
from odradek.coordination.zookeeper.wire import (
    NOTIFICATION_XID,
    PING_XID,
    SET_WATCHES_XID,
    OpCode,
    ReplyHeader,
    ZooKeeperCode,
    encode_set_watches,
    frame,
    parse_notification,
    parse_reply,
)
from odradek.errors import ConnectionLost, DecodeError, SessionExpired, StoreError
from odradek.tasks import Sleep

__all__ = ["KeepCredentials", "ZooKeeperSession"]

logger = logging.getLogger(__name__)

# How long a start, a replacement or a close may wait for the end of a former session.
_END_TIMEOUT_S: Final = 3.0
# A read that breaks every link, because its answer is too long, must not do so for ever.
_MAX_REPEATS: Final = 10
_LAST_XID: Final = (1 << 31) - 1
_SHORTEST_ATTEMPT_S: Final = 0.5

_T = TypeVar("_T")


class KeepCredentials(Protocol):
    """Keeps a session's credentials for the next life."""

    async def save(self, credentials: Credentials) -> None:
        """Replaces what is kept."""
        ...

    async def remove(self) -> None:
        """Forgets what is kept: the session has ended."""
        ...


class _Unanswered(Exception):  # noqa: N818 - names what happened to a request
    """The link broke before the answer came."""


class _Request:
    """A request under way."""

    __slots__ = ("answer", "complete", "sent_ms", "xid")

    def __init__(
        self,
        xid: int,
        sent_ms: int,
        complete: Callable[[ReplyHeader, bytes], Any],
        answer: "asyncio.Future[Any]",
    ) -> None:
        self.xid = xid
        self.sent_ms = sent_ms
        self.complete = complete
        self.answer = answer


class ZooKeeperSession:
    """`odradek.coordination.store.Session`; its owner starts `run` as a task.

    Args:
        servers: The ensemble, in turns.
        server_count: How many there are.
        timeout_ms: The session timeout to ask for; the server may grant another.
        max_in_flight: Requests under way.
        former: The session of a former life, which is ended first.
        locate: The path that the servers have for a caller's path.
        relative: The path that a caller has for a server's path.
        authentication: Proves the broker's identity on each link; None: it has none.
    """

    def __init__(
        self,
        servers: ServerTurns,
        server_count: int,
        *,
        timeout_ms: int,
        max_in_flight: int,
        open_stream: OpenStream,
        clock: Clock,
        sleep: Sleep,
        keep: KeepCredentials,
        former: Credentials | None,
        locate: Callable[[str], str],
        relative: Callable[[str], str],
        authentication: Authentication | None = None,
    ) -> None:
        self._servers = servers
        # A silent link is given up with a third of the timeout left, which is for all servers.
        self._attempt_s = max(_SHORTEST_ATTEMPT_S, timeout_ms / 3000 / server_count)
        self._timeout_ms = timeout_ms
        self._open_stream = open_stream
        self._clock = clock
        self._sleep = sleep
        self._keep = keep
        self._former = former
        self._locate = locate
        self._relative = relative
        self._authentication = authentication
        self._slots = asyncio.Semaphore(max_in_flight)
        self.watches = WatchRegistry()
        self.metrics: SessionMetrics | None = None
        # The reason why the last attempt at each server failed, for the error of a start.
        self.failures: dict[Server, str] = {}

        self._id = 0
        self._state = SessionState.LOST
        self._credentials = NO_SESSION
        self._last_zxid = 0
        self._xid = 0
        self._link: Link | None = None
        self._liveness = Liveness(timeout_ms, clock.monotonic_ms())
        self._under_way: deque[_Request] = deque()
        self._pings_ms: deque[int] = deque()
        self._has_warned = False  # Of this outage.
        self._is_announced = False  # Whether users know the session of `_credentials`.
        self._is_replacement = False  # Whether users knew another one before.
        self._is_to_be_replaced = False  # Whether its loss is still to be told.
        self._is_closing = False
        self._task: asyncio.Task[None] | None = None
        # Set unless the state is SUSPENDED.
        self._is_settled = asyncio.Event()
        self._is_settled.set()
        self.is_connected = asyncio.Event()
        # Set once a server has given a session, or refused the broker's login.
        self.has_outcome = asyncio.Event()
        self.is_login_refused = False  # By the last server that was asked.
        self.is_login_demanded = False  # A server serves no client without one.
        self._on_state: list[Callable[[SessionState], None]] = []
        self._before: list[Callable[[], Awaitable[None]]] = []
        self._after: list[Callable[[], None]] = []

    # As its users see it

    @property
    def id(self) -> int:
        return self._id

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def timeout_ms(self) -> int:
        """The session timeout that the servers granted."""
        return self._liveness.timeout_ms

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        self._on_state.append(callback)

    def on_replacement(
        self, *, before: Callable[[], Awaitable[None]], after: Callable[[], None]
    ) -> None:
        self._before.append(before)
        self._after.append(after)

    async def close(self) -> None:
        """Ends the session for good; if no server answers soon it ends by its timeout."""
        if self._is_closing:
            return
        self._is_closing = True
        has_ended = self._credentials is NO_SESSION
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                if self._link is not None:
                    await self._send(self._link, OpCode.CLOSE, b"", lambda _header, _record: None)
                    has_ended = True
        except (TimeoutError, _Unanswered):
            pass
        finally:
            if self._task is not None and self._task is not asyncio.current_task():
                self._task.cancel()
            credentials = self._credentials
            self._lose("closed by its owner")
        if not has_ended:
            has_ended = await self._end(credentials, self._servers.take()[0])
        if has_ended:
            await self._keep.remove()

    async def call(
        self,
        operation: OpCode,
        body: bytes,
        complete: Callable[[ReplyHeader, bytes], _T],
        *,
        is_write: bool,
    ) -> _T:
        """Sends a request and returns the result that `complete` makes of its answer.

        Args:
            complete: Called with head and record of the answer when that comes; raises the error
                of a refusal.

        Raises:
            SessionExpired: The session is over.
            ConnectionLost: The link broke; whether a write was executed is unknown.
        """
        for _ in range(_MAX_REPEATS):
            await self._wait_for_link(is_write=is_write)
            await self._slots.acquire()
            link = self._link
            if self._state is not SessionState.CONNECTED or link is None or not self._is_live():
                self._slots.release()
                continue
            try:
                answer: _T = await self._send(link, operation, body, complete)
            except _Unanswered as error:
                if is_write:
                    raise ConnectionLost(f"the link broke before the answer: {error}") from None
                continue
            return answer
        raise ConnectionLost(f"no answer on {_MAX_REPEATS} links")

    async def _wait_for_link(self, *, is_write: bool) -> None:
        """Returns when the state is CONNECTED."""
        self.require_live()
        while self._state is SessionState.SUSPENDED:
            if is_write:
                await asyncio.sleep(0)  # A caller that tries again at once must not hold the loop.
                raise ConnectionLost("the link is broken; nothing was sent")
            await self._is_settled.wait()
            self.require_live()

    def require_live(self) -> None:
        """Checks that the session may be used.

        Raises:
            SessionExpired: The session has ended or is about to.
        """
        if self._is_closing or not self._is_live() or self._state is SessionState.LOST:
            raise SessionExpired(f"session {self._id:#x} has ended")

    def _is_live(self) -> bool:
        """Rule 4; false if the session was or is now lost."""
        if self._link is not None:
            self._judge()
        return self._state is not SessionState.LOST

    def _judge(self) -> Verdict:
        verdict = self._liveness.judge(self._clock.monotonic_ms())
        if verdict is Verdict.LOST:
            self._former = self._credentials
            self._lose(f"nothing was acknowledged for {self._liveness.timeout_ms} ms")
        return verdict

    # Links

    async def run(self) -> None:
        """Keeps the session on some server until it is closed."""
        self._task = asyncio.current_task()
        while not self._is_closing:
            if self._is_to_be_replaced:
                self._is_to_be_replaced = False
                await self._prepare_replacement()
            link = await self._attach()
            if link is None:
                self._lose("the server says that it has expired")
                continue
            try:
                async with asyncio.TaskGroup() as tasks:
                    self._begin(link)
                    tasks.create_task(self._read(link), name="zookeeper-reader")
                    tasks.create_task(self._keep_time(link), name="zookeeper-clock")
                    await self._announce(link)
            except* LinkBroken as broken:
                self._unlink(link, str(broken.exceptions[0]))
            finally:
                self._unlink(link, "the session was closed")
                await link.close()

    async def _attach(self) -> Link | None:
        """A link to a server that accepts the session; None if the session has expired."""
        while True:
            server, pause_ms = self._servers.take()
            if pause_ms:
                await self._sleep(pause_ms / 1000)
            asked = self._credentials
            try:
                async with asyncio.timeout(self._attempt_s):
                    link = await Link.open(
                        self._open_stream,
                        server,
                        asked,
                        last_zxid=self._last_zxid,
                        timeout_ms=self._timeout_ms,
                        authentication=self._authentication,
                    )
            # A timeout is an OSError; a name that is no host name is a UnicodeError.
            except (OSError, UnicodeError, LinkBroken) as error:
                self._failed(server, _why(error))
                if isinstance(error, LoginRefused):
                    self.is_login_refused = True
                    self.has_outcome.set()
                continue
            self.is_login_refused = False
            if link.response.session_id != 0:
                return link
            await link.close()
            if asked is not NO_SESSION:
                return None
            self._failed(server, "gave no session")

    def _failed(self, server: Server, why: str) -> None:
        self.failures[server] = why
        level = logging.DEBUG if self._has_warned else logging.WARNING
        self._has_warned = True  # Once for each outage: attempts follow each other quickly.
        logger.log(level, "no link to ZooKeeper server %s, will retry: %s", server, why)

    def _begin(self, link: Link) -> None:
        """Takes a link into use."""
        response, now_ms = link.response, self._clock.monotonic_ms()
        self._credentials = Credentials(response.session_id, response.password)
        self._link = link
        self._liveness = Liveness(response.timeout_ms, now_ms)
        self._pings_ms.clear()
        for paths in self.watches.lists(self._locate):
            body = encode_set_watches(self._last_zxid, paths)
            link.send(frame(SET_WATCHES_XID, OpCode.SET_WATCHES, body))
        if self.metrics is not None:
            self.metrics.connects.mark()
        logger.info(
            "session %#x is on ZooKeeper server %s, timeout %d ms",
            response.session_id,
            link.server,
            response.timeout_ms,
        )

    async def _announce(self, link: Link) -> None:
        """Lets users work; a new session first has to be the only one of this broker."""
        if self._is_announced:
            self._set_state(SessionState.CONNECTED)
            return
        former, self._former = self._former, None
        if former is not None and await self._end(former, link.server):
            logger.info("ended session %#x of a former life", former.session_id)
        await self._keep.save(self._credentials)
        if self._link is not link:  # It was lost meanwhile.
            return
        self._is_announced = True
        self._id = self._credentials.session_id
        self._set_state(SessionState.CONNECTED)
        if self._is_replacement:
            self._tell_replaced()
        self._is_replacement = True

    async def _end(self, credentials: Credentials, server: Server) -> bool:
        """Ends another session through a server; returns whether it is known to be over."""
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                await end_session(
                    self._open_stream,
                    server,
                    credentials,
                    timeout_ms=self._timeout_ms,
                    authentication=self._authentication,
                )
        except (OSError, UnicodeError, LinkBroken) as error:
            logger.warning(
                "session %#x could not be ended and ends by its timeout: %s",
                credentials.session_id,
                _why(error),
            )
            return False
        return True

    def _unlink(self, link: Link, why: str) -> None:
        """Takes a broken link out of use."""
        if self._link is not link:
            return
        self._link = None
        link.break_off()
        if self.metrics is not None:
            self.metrics.disconnects.mark()
        if self._state is SessionState.CONNECTED:
            logger.warning("session %#x is suspended: %s", self._id, why)
            self._has_warned = False
            self._set_state(SessionState.SUSPENDED)
        self._give_up_requests(why)

    def _give_up_requests(self, why: str) -> None:
        while self._under_way:
            request = self._under_way.popleft()
            self._slots.release()
            if not request.answer.done():
                request.answer.set_exception(_Unanswered(why))

    def _lose(self, why: str) -> None:
        """Ends the session here: nothing that a server still sends for it is used."""
        link, self._link = self._link, None
        if link is not None:
            link.break_off()
        self._credentials = NO_SESSION
        self.watches.clear()
        self._give_up_requests(why)
        if self._is_announced:
            self._is_announced = False
            self._is_to_be_replaced = True
            if not self._is_closing:
                logger.warning("session %#x is lost: %s", self._id, why)
                if self.metrics is not None:
                    self.metrics.expires.mark()
        if self._state is not SessionState.LOST:
            self._set_state(SessionState.LOST)

    # States

    async def _prepare_replacement(self) -> None:
        for callback in self._before:
            try:
                await callback()
            except Exception:
                logger.exception("a listener failed before the replacement of a session")

    def _tell_replaced(self) -> None:
        for callback in self._after:
            try:
                callback()
            except Exception:
                logger.exception("a listener failed after the replacement of a session")

    def _set_state(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        if state is SessionState.CONNECTED:
            self.has_outcome.set()
        for event, is_set in (
            (self._is_settled, state is not SessionState.SUSPENDED),
            (self.is_connected, state is SessionState.CONNECTED),
        ):
            if is_set:
                event.set()
            else:
                event.clear()
        for callback in self._on_state:
            try:
                callback(state)
            except Exception:
                logger.exception("a listener failed on session state %s", state.value)

    # Requests and answers

    def _send(
        self,
        link: Link,
        operation: OpCode,
        body: bytes,
        complete: Callable[[ReplyHeader, bytes], Any],
    ) -> "asyncio.Future[Any]":
        now_ms = self._clock.monotonic_ms()
        self._xid = self._xid % _LAST_XID + 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._under_way.append(_Request(self._xid, now_ms, complete, answer))
        self._liveness.sent(now_ms)
        link.send(frame(self._xid, operation, body))
        return answer

    async def _keep_time(self, link: Link) -> None:
        """Pings, and raises LinkBroken when the link is silent for too long."""
        while True:
            verdict = self._judge()
            now_ms = self._clock.monotonic_ms()
            match verdict:
                case Verdict.LOST:
                    raise LinkBroken("the session is lost")
                case Verdict.BROKEN:
                    raise LinkBroken(f"{link.server} was silent for too long")
                case Verdict.PING:
                    self._pings_ms.append(now_ms)
                    self._liveness.sent(now_ms)
                    link.send(frame(PING_XID, OpCode.PING))
            await self._sleep(self._liveness.next_judgement_ms(now_ms) / 1000)

    async def _read(self, link: Link) -> None:
        """Uses what the server sends, in order, until the link breaks."""
        while True:
            data = await link.read()
            if self._judge() is Verdict.LOST or self._link is not link:
                raise LinkBroken("the session is lost")
            self._liveness.heard(self._clock.monotonic_ms())
            try:
                self._handle(*parse_reply(data))
            except DecodeError as error:
                raise LinkBroken(f"{link.server}: {error}") from None

    def _handle(self, header: ReplyHeader, record: bytes) -> None:
        if header.xid == NOTIFICATION_XID:
            event = parse_notification(record)
            if event is not None:
                self.watches.fire(WatchEvent(event.kind, self._relative(event.path)))
            return
        self._servers.connected()
        self._has_warned = False
        if header.xid == PING_XID:
            if self._pings_ms:
                self._liveness.acknowledged(self._pings_ms.popleft())
            return
        self._last_zxid = max(self._last_zxid, header.zxid)
        if header.xid == SET_WATCHES_XID:
            if header.error != ZooKeeperCode.OK:
                raise LinkBroken(f"watches could not be armed again: error {header.error}")
        else:
            self._answer(header, record)

    def _answer(self, header: ReplyHeader, record: bytes) -> None:
        if not self._under_way or self._under_way[0].xid != header.xid:
            expected = self._under_way[0].xid if self._under_way else "none"
            raise LinkBroken(f"expected the answer to request {expected}, found {header.xid}")
        if header.error == ZooKeeperCode.SESSION_MOVED:
            raise LinkBroken("the session has moved to another server")
        if header.error == ZooKeeperCode.SESSION_EXPIRED:
            self._lose("the server says that it has expired")
            raise LinkBroken("the session is lost")
        if header.error == ZooKeeperCode.SASL_REQUIRED:
            self.is_login_demanded = True
        request = self._under_way.popleft()
        self._slots.release()
        self._liveness.acknowledged(request.sent_ms)
        if self.metrics is not None:
            self.metrics.latency.update(self._clock.monotonic_ms() - request.sent_ms)
        if request.answer.done():  # The caller was cancelled: it wants neither result nor watch.
            return
        try:
            request.answer.set_result(request.complete(header, record))
        except StoreError as error:
            request.answer.set_exception(error)
        except DecodeError as error:
            request.answer.set_exception(_Unanswered(str(error)))
            raise


def _why(error: Exception) -> str:
    """The reason why a server could not be used, without the socket library's own words."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "did not answer in time"
    return str(error)
