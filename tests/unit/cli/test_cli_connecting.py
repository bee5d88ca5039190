"""How commands reach a cluster, against a broker that is told what to say."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from odradek.cli.connecting import find_topic
from odradek.client.admin.admin import Admin
from odradek.client.blocking import LoopThread
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.commands import Commands
from tests.support.produced import Log, script
from tests.support.scripted_broker import ScriptedBroker, scripted, told_topic
from tests.support.scripted_groups import batch, ends, fetched, script_topic


@contextmanager
def scripted_elsewhere() -> Iterator[ScriptedBroker]:
    """A scripted broker on a thread of its own: commands have this one's loop."""
    thread = LoopThread("scripted-broker")
    context = scripted()
    try:
        yield thread.run(context.__aenter__())
    finally:
        thread.run(context.__aexit__(None, None, None))
        thread.stop()


def test_produce_is_one_client() -> None:
    """One connection for whatever it asks of a broker."""
    log = Log()
    with scripted_elsewhere() as broker:
        script(broker, log.append)
        Commands(f"127.0.0.1:{broker.port}").ok("produce", "t", stdin=b"a\nb\n")
        assert log.values == {0: [b"a", b"b"]}
        assert len(broker.received(ApiKey.API_VERSIONS)) == 1


def test_consume_is_one_client() -> None:
    """One connection for fetches, and one for all else."""
    with scripted_elsewhere() as broker:
        script_topic(broker, fetched(batch(0, b"a", b"b")), fetched())
        broker.will_answer(ApiKey.LIST_OFFSETS, ends(0, 2))
        words = ("consume", "t", "--from-beginning", "--max-messages", 2)
        assert Commands(f"127.0.0.1:{broker.port}").ok(*words).lines == ["a", "b"]
        assert len(broker.received(ApiKey.API_VERSIONS)) == 2


def test_a_topic_that_was_just_created_is_waited_for() -> None:
    async def look() -> str:
        async with (
            scripted() as broker,
            Admin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin,
        ):
            asked = []

            def tell(request: MetadataRequest) -> MetadataResponse:
                asked.append(request)
                if len(asked) == 3:
                    broker.topics = {"t": told_topic("t")}
                return broker.metadata(request)

            broker.will_answer(ApiKey.METADATA, tell)
            return (await find_topic(admin, "t")).name

    assert asyncio.run(look()) == "t"
