"""Connecting, versions, metadata and retries, against a broker that has its bad days."""

import asyncio

import pytest

from odradek.client import EARLIEST, Client, ClientOptions, FoundOffset, list_offsets
from odradek.client.admin import (
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    alter_configs,
    create_topics,
    delete_records,
    describe_api_versions,
    describe_configs,
)
from odradek.errors import ApiError, DisconnectedError, ErrorCode, RequestTimedOutError
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from odradek.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.support.network import eventually
from tests.support.scripted_broker import HANG_UP, client_of, missing_topic, scripted, told_topic

TP = TopicPartition("t", 0)


def offsets(offset: int = -1, error: ErrorCode = ErrorCode.NONE) -> ListOffsetsResponse:
    partition = ListOffsetsPartitionResponse(partition_index=0, error_code=error, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])])


def created(error: ErrorCode = ErrorCode.NONE) -> CreateTopicsResponse:
    result = CreatableTopicResult(
        name="t", error_code=error, error_message=None, num_partitions=3, replication_factor=1
    )
    return CreateTopicsResponse(topics=[result])


async def test_a_wrong_address_is_told_at_once() -> None:
    client = Client(ClientOptions(bootstrap=(("127.0.0.1", 1), ("127.0.0.1", 2))))

    with pytest.raises(DisconnectedError, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2"):
        async with client:
            pass


async def test_each_api_is_spoken_in_the_newest_common_version() -> None:
    """09:CL-3."""
    async with scripted() as broker:
        broker.versions = {ApiKey.LIST_OFFSETS: (1, 5), ApiKey.METADATA: (0, 99)}
        broker.topics["t"] = told_topic("t")
        broker.will_answer(ApiKey.LIST_OFFSETS, offsets(4))
        async with client_of(broker) as client:
            await list_offsets(client, {TP: EARLIEST})
        versions = {key: version for key, version, _ in broker.requests}

        assert versions[ApiKey.LIST_OFFSETS] == 5
        assert versions[ApiKey.METADATA] == 13


async def test_an_api_that_the_broker_lacks_is_named() -> None:
    """09:CL-3."""
    async with scripted() as broker:
        broker.versions = {ApiKey.CREATE_TOPICS: (99, 99)}
        async with client_of(broker) as client:
            with pytest.raises(ApiError, match=r"CREATE_TOPICS.*99.*2-7") as error:
                await create_topics(client, [NewTopic(name="t")])
        assert error.value.code is ErrorCode.UNSUPPORTED_VERSION


async def test_a_topic_is_waited_for_and_then_remembered() -> None:
    async with scripted() as broker:
        async with client_of(broker) as client:
            asked = len(broker.received(ApiKey.METADATA))
            broker.topics["t"] = missing_topic("t", ErrorCode.LEADER_NOT_AVAILABLE)
            looking = asyncio.create_task(client.topic("t", create=True))
            await eventually(lambda: len(broker.received(ApiKey.METADATA)) >= asked + 3)
            broker.topics["t"] = told_topic("t", partitions=2)
            topic = await looking
            asked = len(broker.received(ApiKey.METADATA))
            again = await client.topic("t")

        assert len(topic.partitions) == 2
        assert again is topic
        assert len(broker.received(ApiKey.METADATA)) == asked
        assert all(
            request.allow_auto_topic_creation
            for request in broker.received(ApiKey.METADATA)
            if request.topics
        )


async def test_a_topic_that_nobody_knows_is_given_up_soon() -> None:
    async with (
        scripted() as broker,
        client_of(broker, unknown_topic_timeout_ms=5) as client,
    ):
        with pytest.raises(ApiError, match="topic 'u' does not exist") as error:
            await client.topic("u")
        assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found = await client.topics(["u"])
        assert isinstance(found["u"], ApiError)
        last = broker.received(ApiKey.METADATA)[-1]
        assert not last.allow_auto_topic_creation


async def test_a_moved_leader_is_looked_up_again() -> None:
    """09:CL-4."""
    async with scripted() as broker:
        broker.topics["t"] = told_topic("t")
        broker.will_answer(
            ApiKey.LIST_OFFSETS, offsets(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), offsets(42)
        )
        async with client_of(broker) as client:
            await client.topic("t")
            asked = len(broker.received(ApiKey.METADATA))
            found = await list_offsets(client, {TP: EARLIEST})

        assert found == {TP: FoundOffset(42, -1, -1)}
        assert len(broker.received(ApiKey.METADATA)) == asked + 1


async def test_a_lost_connection_is_replaced_and_the_question_repeated() -> None:
    async with scripted() as broker:
        broker.topics["t"] = told_topic("t")
        broker.will_answer(ApiKey.LIST_OFFSETS, HANG_UP, HANG_UP, offsets(7))
        async with client_of(broker) as client:
            found = await list_offsets(client, {TP: EARLIEST})

        assert found == {TP: FoundOffset(7, -1, -1)}


async def test_each_partition_has_its_own_result() -> None:
    """09:CL-31: one failing item never fails its neighbours."""
    results = [
        DeleteRecordsPartitionResult(partition_index=0, low_watermark=5),
        DeleteRecordsPartitionResult(
            partition_index=1, low_watermark=-1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE
        ),
    ]
    async with scripted() as broker:
        broker.topics["t"] = told_topic("t", partitions=3)
        broker.will_answer(
            ApiKey.DELETE_RECORDS,
            DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(name="t", partitions=results)]),
        )
        async with client_of(broker) as client:
            got = await delete_records(client, {TopicPartition("t", p): 5 for p in (0, 1, 2, 9)})

        outcomes = [one.code.name if isinstance(one, ApiError) else one for one in got.values()]
        assert outcomes == [5, "OFFSET_OUT_OF_RANGE", "UNKNOWN_SERVER_ERROR", "INVALID_PARTITIONS"]


@pytest.mark.slow
async def test_what_stays_wrong_is_told_when_the_time_is_over() -> None:
    """09:CL-5: every call has a deadline and says what it waited for."""
    time_ms = 1_000  # The first answers come within it.
    async with scripted() as broker:
        broker.topics["t"] = told_topic("t")
        broker.will_answer(ApiKey.LIST_OFFSETS, offsets(error=ErrorCode.LEADER_NOT_AVAILABLE))
        async with client_of(broker, api_timeout_ms=60_000) as client:
            await client.topic("t")
            found = await list_offsets(client, {TP: EARLIEST}, client.deadline(time_ms))
            broker.topics["u"] = missing_topic("u", ErrorCode.LEADER_NOT_AVAILABLE)
            with pytest.raises(RequestTimedOutError, match=r"'u'.*LEADER_NOT_AVAILABLE"):
                await client.topic("u", deadline=client.deadline(time_ms))

        assert isinstance(error := found[TP], ApiError)
        assert error.code is ErrorCode.LEADER_NOT_AVAILABLE


async def test_the_controller_is_asked_again_where_it_moved_to() -> None:
    """09:CL-31: once more after NOT_CONTROLLER."""
    async with scripted() as broker:
        broker.will_answer(ApiKey.CREATE_TOPICS, created(ErrorCode.NOT_CONTROLLER), created())
        async with client_of(broker) as client:
            result = (await create_topics(client, [NewTopic(name="t")]))["t"]

        assert not isinstance(result, ApiError)
        assert result.partition_count == 3
        assert len(broker.received(ApiKey.CREATE_TOPICS)) == 2


async def test_a_change_is_not_repeated_if_its_answer_was_lost() -> None:
    async with scripted() as broker:
        broker.will_answer(ApiKey.CREATE_TOPICS, HANG_UP)
        async with client_of(broker) as client:
            with pytest.raises(ApiError, match="whether it was done is unknown"):
                await create_topics(client, [NewTopic(name="t")])

        assert len(broker.received(ApiKey.CREATE_TOPICS)) == 1


async def test_settings_of_a_broker_are_asked_from_that_broker() -> None:
    topic, here, nowhere = (
        ConfigResource(ConfigResourceType.TOPIC, "t"),
        ConfigResource(ConfigResourceType.BROKER, "0"),
        ConfigResource(ConfigResourceType.BROKER, "8"),
    )

    def describe(request: object) -> DescribeConfigsResponse:
        entry = DescribeConfigsResourceResult(name="a", value="1", config_source=77)
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    error_message=None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=[entry],
                )
                for resource in request.resources  # type: ignore[attr-defined]  # the request
            ]
        )

    async with scripted() as broker:
        broker.will_answer(ApiKey.DESCRIBE_CONFIGS, describe)
        broker.will_answer(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsResponse(responses=[])
        )
        async with client_of(broker) as client:
            described = await describe_configs(client, [topic, here, nowhere])
            altered = await alter_configs(client, {topic: [ConfigOperation.set("a", "b")]})

        entries = described[topic]
        assert not isinstance(entries, ApiError)
        assert (entries[0].name, entries[0].value, entries[0].source.name) == ("a", "1", "UNKNOWN")
        assert described[here] == entries
        assert str(described[nowhere]) == "no broker 8; there are: 0"
        assert "left it out" in str(altered[topic])
        assert len(broker.received(ApiKey.DESCRIBE_CONFIGS)) == 2


async def test_versions_of_every_broker() -> None:
    async with scripted() as broker, client_of(broker) as client:
        (told,) = await describe_api_versions(client)

    produce = told.apis[0]
    assert (told.node_id, produce.name, str(produce.versions), produce.usable) == (
        0,
        "PRODUCE",
        "0-13",
        13,
    )


async def test_a_closed_client_says_so() -> None:
    """09:CL-5: use after close raises, a second close does nothing."""
    async with scripted() as broker:
        async with client_of(broker) as client:
            pass
        client.close()
        with pytest.raises(RuntimeError, match="the client is closed"):
            await client.topics()


@pytest.mark.slow
async def test_an_attempt_that_was_cut_short_hides_no_earlier_trouble() -> None:
    """09:CL-5: the last attempt has hardly any time; what is told is what went wrong before."""
    async with scripted() as broker, client_of(broker, api_timeout_ms=60_000) as client:
        broker.topics["t"] = told_topic("t")
        await client.topic("t")
        wrong = offsets(error=ErrorCode.LEADER_NOT_AVAILABLE)
        broker.will_answer(ApiKey.LIST_OFFSETS, wrong, lambda _request: None)
        deadline = client.deadline(1_000)
        error = (await list_offsets(client, {TP: EARLIEST}, deadline))[TP]
        assert isinstance(error, ApiError)
        assert error.code is ErrorCode.LEADER_NOT_AVAILABLE


async def test_a_request_waits_no_longer_for_a_place_than_it_may() -> None:
    """09:CL-5: as many as may be under way are, and nobody answers."""
    settings = {"max_in_flight": 2, "api_timeout_ms": 60_000}
    async with scripted() as broker, client_of(broker, **settings) as client:
        broker.topics["t"] = told_topic("t")
        await client.topic("t")
        broker.will_answer(ApiKey.LIST_OFFSETS, lambda _request: None)
        asking = [
            asyncio.create_task(list_offsets(client, {TP: EARLIEST}, client.deadline()))
            for _ in range(2)
        ]
        while len(broker.received(ApiKey.LIST_OFFSETS)) < 2:  # noqa: ASYNC110 - the broker's list
            await asyncio.sleep(0.001)
        with pytest.raises(RequestTimedOutError, match="earlier requests were not answered"):
            await client.topics(["t"], client.deadline(50))
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
