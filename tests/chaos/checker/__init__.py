"""Judges the history of a cluster's clients: 15 section 3, without cycles.

Only the standard library is imported here, and nothing of the cluster under test: a checker that
shared code with what it judges would share its mistakes. All functions are pure, over the text of a
history; `python -m tests.chaos.checker FILE` reads one and prints the verdicts.

A history is a text of JSON objects, one in a line, in any order of the processes that wrote them.
Each has ``event``, ``t`` (seconds of the machine's monotonic clock, which all processes of a run
share) and ``process`` (the writer). A line that the death of its writer cut short is skipped.
Partitions are named by ``topic`` and ``partition``; a topic that was deleted and made anew has
another name for each of its lives, ``churn#2``, because its offsets begin anew.

``run``         seed, cluster, allowed: names of anomalies that this run may have
``excused``     names, why: a fault of the cluster that is known, and that its logs show in this run
``send``        n, topic, partition, key, value: a record is handed to a producer, once;
                n counts the sends of the process, and values are unique in a run; optional txn, the
                number of its transaction, and source [topic, partition, offset, value], the record
                of which it is the result
``sent``        n, outcome, offset, error: ``ok`` acknowledged (offset null: not told), ``fail`` the
                record was certainly not written, ``unknown`` anything else
``assign``      positions [[topic, partition, offset]]: a reader begins there by hand
``poll``        records [[topic, partition, offset, value]] in the order in which they came
``joined``      group, generation, member, partitions [[topic, partition]]: all that it owns now
``revoked``     group, generation, partitions: the member gives them up, or has lost them
``commit``      n, group, generation (null: not known), offsets [[topic, partition, offset]]; with
                txn it is part of that transaction, and there is no commit-done
``commit-done`` n, outcome, error
``committed``   since, group, offsets [[topic, partition, offset or null]]: what a client was told
                that asked at ``since``
``watermarks``  since, topic, partition, low, high, optional stable: what ListOffsets told a client
``isolation``   level: the process reads ``read_committed``; others read everything
``txn-begin``   n, id: a transaction of this transactional id begins; n counts those of the process
``txn-ending``  n, wish (commit, abort): its end is asked for; the first counts
``txn-ended``   n, outcome (committed, aborted, unknown), error: what the producer was told
``fault``       n, name, phase (begin, end), targets, detail, serves: whether producers are to be
                acknowledged while it lasts, from `healing.SETTLING_S` after its beginning
``healed``      bound_s: all faults have ended; from here on producers are to be acknowledged again
``final-read``  topic, partition, low, high, records [[offset, value]]: all of it, read at the end;
                optional isolation, read_committed where there are transactions
``replica``     broker, topic, partition, high, batches [[base, last, leader epoch, digest, producer
                id, producer epoch, base sequence]], records [[offset, value]]: a replica's files
                at the end, up to the high watermark
``ended``       a producer sends no more: it has sent all that it was to send
``deleted``     topic: this life of the topic is over, its records with it
``in-sync``     topic, partition, replicas, in_sync: broker ids, as told when all had returned, or
                when there was no time left to wait for it
``controllers`` counts {broker: count}: ActiveControllerCount of each after healing

`ANOMALIES` has the names of the verdicts and what they mean.
"""

from tests.chaos.checker.anomalies import ANOMALIES, Anomaly
from tests.chaos.checker.history import History, MalformedHistoryError, parse_history
from tests.chaos.checker.judging import Report, judge
from tests.chaos.checker.segments import StoredBatch, parse_batches

__all__ = [
    "ANOMALIES",
    "Anomaly",
    "History",
    "MalformedHistoryError",
    "Report",
    "StoredBatch",
    "judge",
    "parse_batches",
    "parse_history",
]
