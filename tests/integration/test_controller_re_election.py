"""`odradek controller re-elect` on a whole broker."""

import asyncio
import socket
import stat
from pathlib import Path

import pytest

from odradek.broker.broker import Broker
from odradek.broker.config import load_broker_settings
from odradek.broker.control_socket import SOCKET_FILE, ControlSocket, ask
from odradek.coordination.nodes import PartitionStateNode
from odradek.coordination.paths import partition_state_path
from odradek.coordination.store import ANY_VERSION
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.admin_requests import NewTopic
from odradek.metadata.delta import ClusterDelta, ImageDelta
from odradek.metadata.image import PartitionState
from odradek.model import LeaderAndIsr, TopicPartition
from tests.support.broker_stores import store_of
from tests.support.commands import Outcome, run_command
from tests.support.network import eventually

pytestmark = pytest.mark.slow

T0 = TopicPartition("t", 0)


def make_broker(path: Path) -> Broker:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(path)}
    return Broker(load_broker_settings(None, settings, {}))


async def re_elect(path: Path, *words: str) -> Outcome:
    """Runs the command as another process would: the loop goes on meanwhile."""
    return await asyncio.to_thread(
        run_command, "controller", "re-elect", "--data", str(path), *words
    )


async def create_topic(broker: Broker) -> None:
    new = NewTopic(name="t", partition_count=1, replication_factor=1)
    [result] = await broker._controller.create_topics([new])
    assert not result.error
    await eventually(lambda: broker._state.cache.contains(T0), "the topic's metadata")


def shown_leader(broker: Broker) -> int:
    return broker._state.cache.image.topics["t"].partitions[0].leader


def test_a_partition_without_leader_has_one_again(tmp_path: Path) -> None:
    """08:K-22, 08:F-11: the new controller reads everything and tells it anew."""

    async def scenario() -> None:
        broker = make_broker(tmp_path)
        await broker.start()
        try:
            await create_topic(broker)
            # The store and this broker's metadata lost the leader; the controller does not know.
            lost = LeaderAndIsr(leader=-1, leader_epoch=4, isr=(0,))
            await store_of(broker).set(
                partition_state_path(T0), PartitionStateNode(lost, 1).encode(), ANY_VERSION
            )
            state = PartitionState(
                topic="t", partition=0, leader=-1, leader_epoch=4, isr=(0,), replicas=(0,)
            )
            await broker._state.publisher.publish(
                ImageDelta(cluster=ClusterDelta(partitions=(state,)))
            )
            assert shown_leader(broker) == -1

            outcome = await re_elect(tmp_path)

            assert outcome == (0, "controller elected: broker 0, epoch 2 (before: 1)\n", "")
            assert broker._controller.is_active
            await eventually(lambda: shown_leader(broker) == 0, "the leader in the metadata")
            data, found = await store_of(broker).get(partition_state_path(T0))
            assert PartitionStateNode.parse(data, found.version).leader_and_isr.leader == 0
        finally:
            await broker.stop()

    asyncio.run(scenario())


def test_every_time_is_another_epoch(tmp_path: Path) -> None:
    """08:K-22: the answer tells the epochs, for programs, too."""

    async def scenario() -> None:
        broker = make_broker(tmp_path)
        await broker.start()
        try:
            first = (await re_elect(tmp_path, "--json")).json
            second = (await re_elect(tmp_path, "--json")).json
        finally:
            await broker.stop()
        assert first == {"controller": 0, "old_epoch": 1, "new_epoch": 2}
        assert second == {"controller": 0, "old_epoch": 2, "new_epoch": 3}

    asyncio.run(scenario())


def test_of_two_at_once_one_is_told_that_there_is_no_controller(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = make_broker(tmp_path)
        await broker.start()
        controller = broker._controller
        try:
            first, second = await asyncio.gather(
                controller.give_up(), controller.give_up(), return_exceptions=True
            )
            await eventually(lambda: controller.is_active, "the next election")
        finally:
            await broker.stop()
        assert first == 1
        assert isinstance(second, ApiError)
        assert second.code is ErrorCode.NOT_CONTROLLER

    asyncio.run(scenario())


def test_only_the_broker_s_user_may_and_nothing_is_left_behind(tmp_path: Path) -> None:
    """The path is longer than a socket's may be."""
    data = tmp_path / ("d" * 120)

    async def scenario() -> None:
        broker = make_broker(data)
        await broker.start()
        mode = (data / SOCKET_FILE).stat().st_mode
        try:
            outcome = await re_elect(data)
        finally:
            await broker.stop()
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
        assert outcome.code == 0

    asyncio.run(scenario())
    assert not (data / SOCKET_FILE).exists()


@pytest.mark.parametrize("was_killed", [False, True])
def test_nobody_runs_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, was_killed: bool
) -> None:
    """A socket that nobody listens on is as good as none."""
    if was_killed:
        monkeypatch.chdir(tmp_path)  # The path may be too long for a socket.
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(SOCKET_FILE)

    outcome = run_command("controller", "re-elect", "--data", str(tmp_path))

    assert (outcome.code, outcome.out) == (1, "")
    assert f"no broker takes commands in {tmp_path}" in outcome.err
    assert "odradek serve" in outcome.err


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    outcome = run_command("controller", "re-elect", "--data", str(tmp_path / "none"))

    assert outcome.code == 1
    assert "no broker takes commands" in outcome.err


def test_words_that_are_no_command(tmp_path: Path) -> None:
    """A name nobody knows is refused; who talks too much gets no answer; both leave it in order."""

    async def scenario() -> None:
        control = ControlSocket(str(tmp_path), {})
        await control.start()
        try:
            answer = await asyncio.to_thread(ask, str(tmp_path), "x", timeout_s=60)
            assert answer == {"error": "expected one of , not 'x'"}
            with pytest.raises((ValueError, ConnectionError)):
                await asyncio.to_thread(ask, str(tmp_path), "x" * 100_000, timeout_s=60)
        finally:
            await control.stop()

    asyncio.run(scenario())


def test_a_failing_command_and_a_second_start(tmp_path: Path) -> None:
    """What nobody reckoned with is told, too; a socket that was left is replaced."""

    async def fail() -> dict[str, object]:
        raise RuntimeError("broken")

    async def scenario() -> None:
        killed, control = (ControlSocket(str(tmp_path), {"fail": fail}) for _ in range(2))
        await killed.start()
        await control.start()
        try:
            answer = await asyncio.to_thread(ask, str(tmp_path), "fail", timeout_s=60)
            assert "broken" in answer["error"]
        finally:
            await control.stop()
            await killed.stop()

    asyncio.run(scenario())
