"""The blocking clients: one thread each, closed in order, refused where they would hang."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import odradek
from odradek import Admin, Consumer, Producer, aio
from odradek.client.consumer import ConcurrentModificationError, WakeupError
from odradek.client.errors import ClosedError, ForkedError
from odradek.client.producer import TransactionStateError
from odradek.errors import ApiError, DisconnectedError, ErrorCode
from odradek.protocol.api_keys import ApiKey
from tests.support.produced import Log, refuse, script
from tests.support.scripted_broker import ScriptedBroker, scripted
from tests.support.transactions import script_transactions

THREADS = ("odradek-producer", "odradek-admin")


@contextmanager
def scripted_elsewhere(*answers: object) -> Iterator[ScriptedBroker]:
    """A scripted broker on a loop in a thread of its own."""
    from odradek.client.blocking import LoopThread

    thread = LoopThread("scripted-broker")
    context = scripted()
    broker = thread.run(_enter(context))
    script(broker, *answers)  # type: ignore[arg-type]  # answers
    try:
        yield broker
    finally:
        thread.run(_leave(context))
        thread.stop()


async def _enter(context: object) -> ScriptedBroker:
    broker: ScriptedBroker = await context.__aenter__()  # type: ignore[attr-defined]
    return broker


async def _leave(context: object) -> None:
    await context.__aexit__(None, None, None)  # type: ignore[attr-defined]


def servers(broker: ScriptedBroker) -> dict[str, object]:
    return {"bootstrap.servers": f"127.0.0.1:{broker.port}", "linger.ms": 0}


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name in THREADS]


def test_a_producer_in_a_plain_script() -> None:
    log = Log()
    with scripted_elsewhere(log.append) as broker:
        with Producer(servers(broker)) as producer:
            assert own_threads() == ["odradek-producer"]
            delivery = producer.send("t", key=b"k", value=b"v", headers=[("h", b"1")])
            assert delivery.result(30).offset == 0
            assert producer.send("t", b"w").result(30).offset == 1
            assert producer.partitions_for("t").name == "t"
            late = producer.send("t", b"x")
        assert late.result().offset == 2  # Leaving the block delivers the rest.
        assert own_threads() == []
        assert log.values == {0: [b"v", b"w", b"x"]}


def fail_in_transaction(producer: Producer) -> None:
    with producer.transaction():
        producer.send("t", b"lost")
        raise ZeroDivisionError


def test_a_transaction_in_a_plain_script() -> None:
    """10:TX-1, 10:TX-2: committed at the end of its block, aborted if that raises."""
    with scripted_elsewhere() as broker:
        script_transactions(broker, version=2)
        with Producer(servers(broker), transactional_id="tx") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("t", b"kept")
            with pytest.raises(ZeroDivisionError):
                fail_in_transaction(producer)
            with pytest.raises(TransactionStateError, match="send is not possible now"):
                producer.send("t", b"outside")
            producer.begin_transaction()
            producer.send_offsets({("t", 0): 1}, "g")
            assert producer.ticket().transactional_id == "tx"
            producer.abort_transaction()
        ends = [one.committed for one in broker.received(ApiKey.END_TXN)]
        assert ends[0] is True
        assert set(ends[1:]) == {False}


def test_both_faces_have_the_same_names() -> None:
    for name in ("Admin", "Producer"):
        blocking, awaited = getattr(odradek, name), getattr(aio, name)
        public = {one for one in dir(awaited) if not one.startswith("_")}
        inner = {"start", "accumulator", "know_topic", "prepare", "is_plain", "max_block_ms"}
        inner |= {"arrow_send_of", "rows_send_of", "delivery_of", "over", "abort_quietly"}
        missing = {one for one in public - inner - {"no_room"} if not hasattr(blocking, one)}
        assert missing == set()


def test_use_after_close_raises_and_a_second_close_does_nothing() -> None:
    """09:CL-5."""
    with scripted_elsewhere() as broker:
        producer, admin = (
            Producer(servers(broker)),
            Admin(bootstrap_servers=f"127.0.0.1:{broker.port}"),
        )
        assert producer.send("t", b"a").result(30).offset == 100
        producer.close()
        producer.close()
        with pytest.raises(ClosedError, match="the producer is closed"):
            producer.send("t", b"a")
        with pytest.raises(ClosedError, match="the producer is closed"):
            producer.flush()
        assert admin.list_topics() == ["t"]
        admin.close()
        admin.close()
        with pytest.raises(ClosedError, match="the admin is closed"):
            admin.list_topics()


@pytest.mark.parametrize("kind", [Admin, Producer, Consumer])
def test_who_asks_for_a_connection_hears_of_a_wrong_address_at_once(
    kind: type[Admin | Producer | Consumer],
) -> None:
    """The time for calls is not waited for: it is longer than a test may take."""
    with (
        kind({"bootstrap.servers": "127.0.0.1:1"}) as client,
        pytest.raises(DisconnectedError, match=r"127\.0\.0\.1:1"),
    ):
        client.connect()
    with (
        scripted_elsewhere() as broker,
        kind({"bootstrap.servers": servers(broker)["bootstrap.servers"]}) as client,
    ):
        client.connect()
        assert len(broker.received(ApiKey.METADATA)) == 1


def test_a_wrong_address_is_told_and_ends_in_time() -> None:
    """09:CL-5."""
    with Admin(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=50) as admin:
        with pytest.raises((TimeoutError, DisconnectedError), match=r"127\.0\.0\.1:1"):
            admin.list_topics()
        with pytest.raises(TimeoutError):
            admin.describe_cluster(timeout=0.03)
    with (
        Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=50) as producer,
        pytest.raises(TimeoutError, match=r"'t'"),
    ):
        producer.send("t", b"a")


@pytest.fixture
def restless_threads() -> Iterator[None]:
    """Threads take turns as often as they can, and find each other amid everything."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.usefixtures("restless_threads", "gathering")
def test_threads_may_share_a_producer() -> None:
    """09:CL-6: without compiled modules, too, where every record takes the lock."""
    log = Log()
    with scripted_elsewhere(log.append) as broker:
        # A buffer of two batches: threads take turns at waiting for room.
        settings = servers(broker) | {"batch.size": 1000, "buffer.memory": 2000}
        with Producer(settings) as producer:
            offsets: dict[int, list[int]] = {}

            def work(worker: int) -> None:
                sent = [producer.send("t", b"%d:%d" % (worker, n)) for n in range(200)]
                offsets[worker] = [one.result(60).offset for one in sent]

            threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)

    values = log.values[0]
    assert len(values) == 800
    for worker, found in offsets.items():
        # Each finds its own records where it was told, in its own order.
        assert [values[offset] for offset in found] == [b"%d:%d" % (worker, n) for n in range(200)]


def test_a_callback_runs_on_the_producers_thread_and_may_not_wait_there() -> None:
    seen: list[object] = []
    done = threading.Event()
    # The record waits for others until the callback is there: `flush` would wait for it, too.
    with (
        scripted_elsewhere() as broker,
        Producer({**servers(broker), "linger.ms": 500}) as producer,
    ):

        def on_done(delivery: object) -> None:
            seen.append(threading.current_thread().name)
            try:
                producer.flush()
            except RuntimeError as error:
                seen.append(str(error))
            done.set()

        producer.send("t", b"a").add_done_callback(on_done)
        assert done.wait(60)

    assert seen[0] == "odradek-producer"
    assert "would wait for itself" in str(seen[1])


def test_a_failure_is_raised_where_it_is_asked_for() -> None:
    failed: list[object] = []
    with (
        scripted_elsewhere(refuse(ErrorCode.INVALID_RECORD)) as broker,
        Producer(servers(broker), on_error=failed.append) as producer,
    ):
        delivery = producer.send("t", b"a")
        with pytest.raises(ApiError, match="INVALID_RECORD"):
            delivery.result(30)
        assert delivery.exception(30) is not None
    assert len(failed) == 1


def test_a_result_that_does_not_come_in_time() -> None:
    """09:CL-5."""
    with scripted_elsewhere(lambda _request: None) as broker:
        producer = Producer(servers(broker), on_error=lambda _failed: None)
        delivery = producer.send("t", b"a")
        with pytest.raises(TimeoutError, match="t-0"):
            delivery.result(timeout=0.02)
        assert "on its way" in repr(delivery)
        producer.close(timeout=0)
        with pytest.raises(ClosedError):
            delivery.result()


def test_a_child_process_is_refused() -> None:
    """09:CL-6: after fork both refuse with a clear error."""
    with scripted_elsewhere() as broker, Producer(servers(broker)) as producer:
        assert producer.send("t", b"a").result(30).offset == 100
        child = os.fork()
        if child == 0:
            try:
                producer.close()  # Does nothing: the parent's sockets are not the child's.
                producer.send("t", b"a")
            except ForkedError:
                os._exit(7)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        assert producer.send("t", b"a").result(30).offset == 100


async def test_a_delivery_may_be_awaited_on_another_loop() -> None:
    with scripted_elsewhere() as broker, Producer(servers(broker)) as producer:
        assert (await producer.send("t", b"a")).offset == 100


def test_a_consumer_that_another_thread_uses_is_not_closed() -> None:
    """09:CL-6: the other thread polls on, as if nobody had tried."""
    heard: list[str] = []
    # Nobody is there: a poll waits all its time.
    consumer = odradek.Consumer(bootstrap_servers="127.0.0.1:1")
    consumer.assign([("t", 0)])

    def poll() -> None:
        while not heard:
            try:
                consumer.poll(60)
            except ConcurrentModificationError:
                continue  # The test looked at that very moment.
            except WakeupError:
                heard.append("woken")

    polling = threading.Thread(target=poll)
    polling.start()
    try:
        deadline = time.monotonic() + 60
        while not _is_used_elsewhere(consumer):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(ConcurrentModificationError):
            consumer.close()
        consumer.wakeup()
        polling.join(60)
        assert heard == ["woken"]
        assert consumer.paused() == frozenset()
    finally:
        polling.join(60)
        consumer.close(0)
    consumer.close()


def _is_used_elsewhere(consumer: odradek.Consumer) -> bool:
    if consumer._owner.acquire(blocking=False):
        consumer._owner.release()
        return False
    return True
