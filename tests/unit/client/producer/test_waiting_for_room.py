"""Callers who wait for room in the buffer have their turn, whatever the others do."""

import threading

from odradek.client.producer.accumulator import Accumulator, TopicQueues
from tests.unit.client.producer.test_partitioning import accumulator

FULL = b"x" * 900
WAIT_S = 30


def full_buffer() -> tuple[Accumulator, TopicQueues]:
    """Two partitions with a batch each, and memory for no third."""
    made, topic = accumulator(2, buffer_memory=2_000)
    for partition in (0, 1):
        assert made.append("t", FULL, None, (), partition, None) is not None
    assert made.free_bytes == 0
    return made, topic


def free_batch_of(made: Accumulator, topic: TopicQueues, partition: int) -> None:
    """As if its broker had answered."""
    queue = topic.queues[partition]
    made.close_batch(queue)
    with made._lock:
        made.free(queue.closed.pop())
    made.tell_waiting()


def test_who_goes_takes_only_the_own_place() -> None:
    """09:CL-10: places of callers who wait for as many bytes are not mixed up."""
    made, topic = full_buffer()
    first, second = made.take_ticket(), made.take_ticket()
    for ticket in (first, second):
        assert made.append("t", FULL, None, (), 0, None, ticket) is None
    assert first.needed_bytes == second.needed_bytes > 0
    # The second finds room in a batch that is open, and needs none of the buffer.
    assert made.append("t", b"", None, (), 0, None, second) is not None
    made.drop_ticket(second)
    assert not made.has_turn(first)

    free_batch_of(made, topic, 0)
    assert made.has_turn(first)
    assert made.append("t", FULL, None, (), 0, None, first) is not None
    made.drop_ticket(first)
    assert not made.is_exhausted


def test_all_who_wait_for_as_much_have_their_turn() -> None:
    """09:CL-10: threads that wait for the same number of bytes; one batch is freed at a time."""
    made, topic = full_buffer()
    placed = threading.Semaphore(0)
    tickets = [made.take_ticket() for _ in range(8)]

    def wait(number: int) -> None:
        ticket = tickets[number]
        while made.append("t", FULL, None, (), number % 2, None, ticket) is None:
            if not made.wait_for_room(ticket, WAIT_S):
                return
        made.drop_ticket(ticket)
        placed.release()

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for number in range(8):
        free_batch_of(made, topic, number % 2)
        assert placed.acquire(timeout=WAIT_S), f"caller {number} never had room"
    for thread in threads:
        thread.join(WAIT_S)
    assert not made.is_exhausted
