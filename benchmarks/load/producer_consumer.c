/* Load through librdkafka, so that the client is never what is measured.
 *
 *   producer_consumer create  BOOTSTRAP TOPIC PARTITIONS    (with an empty message in each)
 *   producer_consumer produce BOOTSTRAP TOPIC SIZE COUNT ACKS
 *   producer_consumer fill    BOOTSTRAP TOPIC SIZE COUNT PARTITIONS
 *   producer_consumer consume BOOTSTRAP TOPIC PARTITIONS COUNT [ISOLATION_LEVEL]
 *   producer_consumer transact BOOTSTRAP TOPIC SIZE RECORDS COUNT PRODUCERS PARTITIONS ABORTED
 *   producer_consumer latency BOOTSTRAP TOPIC SIZE COUNT PER_SECOND
 *   producer_consumer beside  BOOTSTRAP TOPIC SIZE COUNT PER_SECOND
 *
 * Each prints one line of JSON with times in nanoseconds, and exits with 1 if a message was lost.
 * Batching is librdkafka's default; only its queues are made longer, so that it never waits for
 * this program. `fill` produces, too, but deals blocks of messages out to the partitions in turn: the
 * client's own choice, a random partition every 10 ms, fills them the less evenly the faster the
 * server is, and a consumer then waits for the longest one. `latency` does not linger: a message leaves when it is handed over. Its times run
 * from that moment to the delivery report; if a server stalls, the messages that were due
 * meanwhile are handed over late, but at the pace of the schedule again as soon as possible.
 * `beside` is the same until its input ends. It says "delivering" when the first hundred messages
 * were answered, and counts those that are sent after a line of input. `transact` ends COUNT
 * transactions of so many records, dealt out to the partitions one by one; each producer, a thread,
 * has its share, one after another, and aborts every ABORTED-th of its own (0: none). Its times are
 * those of the commits, with what they wait for: the records that are not acknowledged yet.
 */
#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_MS 60000 /* without any progress */

static void fail(const char *what, const char *why) {
    fprintf(stderr, "producer_consumer: %s: %s\n", what, why);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int64_t cpu_ns(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000LL +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000LL;
}

static long number(const char *text) {
    char *end;
    long value = strtol(text, &end, 10);
    if (*end != '\0' || value < -1) fail("not a number", text);
    return value;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[512];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK) fail(name, why);
}

static rd_kafka_t *client(rd_kafka_type_t type, rd_kafka_conf_t *conf, const char *bootstrap) {
    char why[512];
    set(conf, "bootstrap.servers", bootstrap);
    rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
    if (rk == NULL) fail("cannot start a client", why);
    return rk;
}

/* Producing: counters of delivery reports, shared by `produce` and `latency`. */

static long delivered, refused;
static rd_kafka_resp_err_t last_error;
static int64_t *latencies_ns; /* one per counted message; NULL if nobody asks */
static long counted;
static int64_t counted_from;  /* messages that were sent earlier do not count */

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    if (message->err) {
        refused++;
        last_error = message->err;
        return;
    }
    int64_t sent_at = (intptr_t)message->_private;
    if (latencies_ns != NULL && sent_at >= __atomic_load_n(&counted_from, __ATOMIC_ACQUIRE))
        latencies_ns[counted++] = now_ns() - sent_at;
    __atomic_add_fetch(&delivered, 1, __ATOMIC_RELEASE);
}

static rd_kafka_t *producer(const char *bootstrap, const char *acks, const char *linger_ms) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "queue.buffering.max.messages", "1000000");
    set(conf, "queue.buffering.max.kbytes", "524288");
    set(conf, "acks", acks);
    set(conf, "log_level", "2");  /* A broker may be killed on purpose; losses are counted. */
    if (linger_ms != NULL) set(conf, "linger.ms", linger_ms);
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    return client(RD_KAFKA_PRODUCER, conf, bootstrap);
}

static void send_one(rd_kafka_t *rk, rd_kafka_topic_t *topic, int32_t partition, char *value,
                     size_t size, void *tag) {
    while (rd_kafka_produce(topic, partition, 0, value, size, NULL, 0, tag) == -1) {
        rd_kafka_resp_err_t error = rd_kafka_last_error();
        if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL) fail("produce", rd_kafka_err2str(error));
        rd_kafka_poll(rk, 10);
    }
}

static void check_delivered(long count) {
    if (refused != 0) fail("messages were refused", rd_kafka_err2str(last_error));
    if (delivered != count) fail("messages are missing", "the server did not answer in time");
}

static rd_kafka_topic_t *warm_topic(rd_kafka_t *rk, const char *name) {
    /* Metadata and connections first: they are measured elsewhere. */
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, name, NULL);
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t error = rd_kafka_metadata(rk, 0, topic, &metadata, TIMEOUT_MS);
    if (error) fail("metadata", rd_kafka_err2str(error));
    rd_kafka_metadata_destroy(metadata);
    return topic;
}

#define BLOCK_BYTES (256 << 10) /* dealt out to one partition before it is the next one's turn */

/* Without partitions the client chooses. */
static void produce(const char *bootstrap, const char *name, long size, long count,
                    const char *acks, long partitions) {
    rd_kafka_t *rk = producer(bootstrap, acks, NULL);
    rd_kafka_topic_t *topic = warm_topic(rk, name);
    char *value = malloc(size);
    memset(value, 'x', size);
    int64_t started = now_ns();
    for (long i = 0; i < count; i++) {
        int32_t partition = RD_KAFKA_PARTITION_UA;
        if (partitions > 0) partition = (int32_t)(i * size / BLOCK_BYTES % partitions);
        send_one(rk, topic, partition, value, size, NULL);
        if (i % 1024 == 0) rd_kafka_poll(rk, 0);
    }
    rd_kafka_flush(rk, TIMEOUT_MS);
    int64_t elapsed = now_ns() - started;
    check_delivered(count);
    printf("{\"elapsed_ns\": %ld, \"client_cpu_ns\": %ld, \"bytes\": %ld}\n", (long)elapsed,
           (long)cpu_ns(), size * count);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    free(value);
}

/* Latency at a fixed rate */

static int polling = 1;

static void *poll_reports(void *rk) {
    while (__atomic_load_n(&polling, __ATOMIC_ACQUIRE)) rd_kafka_poll(rk, 100);
    return NULL;
}

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

#define DELIVERING_AFTER 100

/* Says when messages arrive, begins to count them after a line of input; returns whether the input
 * has ended. */
static int follow_input(void) {
    static int is_told;
    if (!is_told && __atomic_load_n(&delivered, __ATOMIC_ACQUIRE) >= DELIVERING_AFTER) {
        is_told = 1;
        puts("delivering");
        fflush(stdout);
    }
    struct pollfd input = {0, POLLIN, 0};
    char line[64];
    if (poll(&input, 1, 0) <= 0) return 0;
    if (read(0, line, sizeof line) <= 0) return 1;
    __atomic_store_n(&counted_from, now_ns(), __ATOMIC_RELEASE);
    return 0;
}

static void latency(const char *bootstrap, const char *name, long size, long count, long rate,
                    int is_ended_by_input) {
    rd_kafka_t *rk = producer(bootstrap, "all", "0");
    rd_kafka_topic_t *topic = warm_topic(rk, name);
    char *value = malloc(size);
    memset(value, 'x', size);
    latencies_ns = calloc(count, sizeof *latencies_ns);
    if (is_ended_by_input) counted_from = INT64_MAX;
    pthread_t poller;
    if (pthread_create(&poller, NULL, poll_reports, rk) != 0) fail("no thread", strerror(errno));
    int64_t started = now_ns();
    for (long i = 0; i < count; i++) {
        if (is_ended_by_input && follow_input()) count = i;
        if (i == count) break;
        int64_t due = started + i * (1000000000LL / rate);
        struct timespec t = {due / 1000000000LL, due % 1000000000LL};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) continue;
        send_one(rk, topic, RD_KAFKA_PARTITION_UA, value, size, (void *)(intptr_t)now_ns());
    }
    rd_kafka_flush(rk, TIMEOUT_MS);
    int64_t elapsed = now_ns() - started;
    __atomic_store_n(&polling, 0, __ATOMIC_RELEASE);
    pthread_join(poller, NULL);
    check_delivered(count);
    if (counted == 0) fail("latency", "ended before the first message that counts");
    qsort(latencies_ns, counted, sizeof *latencies_ns, compare);
    printf("{\"elapsed_ns\": %ld, \"p50_ns\": %ld, \"p99_ns\": %ld, \"max_ns\": %ld}\n",
           (long)elapsed, (long)latencies_ns[counted / 2], (long)latencies_ns[counted * 99 / 100],
           (long)latencies_ns[counted - 1]);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    free(latencies_ns);
    free(value);
}

/* Consuming: every partition from offset 0, without a group. */

struct consumed {
    long count, bytes;
};

static void on_message(rd_kafka_message_t *message, void *opaque) {
    struct consumed *consumed = opaque;
    if (message->err) fail("consume", rd_kafka_message_errstr(message));
    consumed->count++;
    consumed->bytes += message->len;
}

static void consume(const char *bootstrap, const char *name, long partitions, long count,
                    const char *isolation) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (isolation != NULL) set(conf, "isolation.level", isolation);
    /* Enough read ahead that the client never waits for itself; the default is per message. */
    set(conf, "queued.min.messages", "1000000");
    rd_kafka_t *rk = client(RD_KAFKA_CONSUMER, conf, bootstrap);
    rd_kafka_topic_t *topic = warm_topic(rk, name);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    struct consumed consumed = {0, 0};
    int64_t started = now_ns();
    for (long i = 0; i < partitions; i++)
        if (rd_kafka_consume_start_queue(topic, i, 0, queue) == -1)
            fail("consume", rd_kafka_err2str(rd_kafka_last_error()));
    int64_t progress = started;
    while (consumed.count < count) {
        long before = consumed.count;
        rd_kafka_consume_callback_queue(queue, 100, on_message, &consumed);
        int64_t now = now_ns();
        if (consumed.count != before)
            progress = now;
        else if (now - progress > TIMEOUT_MS * 1000000LL)
            fail("consume", "the server does not send all messages");
    }
    int64_t elapsed = now_ns() - started;
    printf("{\"elapsed_ns\": %ld, \"client_cpu_ns\": %ld, \"bytes\": %ld}\n", (long)elapsed,
           (long)cpu_ns(), consumed.bytes);
    for (long i = 0; i < partitions; i++) rd_kafka_consume_stop(topic, i);
    rd_kafka_queue_destroy(queue);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
}

/* Transactions */

struct transactor {
    pthread_t thread;
    rd_kafka_t *rk;
    rd_kafka_topic_t *topic;
    long size, records, count, partitions, aborted;
    int64_t *commits_ns; /* of those that were not aborted */
    long commits;
};

static pthread_barrier_t all_ready;

static void check(rd_kafka_error_t *error, const char *what) {
    if (error != NULL) fail(what, rd_kafka_error_string(error));
}

static void *transact_one(void *opaque) {
    struct transactor *own = opaque;
    char *value = malloc(own->size);
    memset(value, 'x', own->size);
    check(rd_kafka_init_transactions(own->rk, TIMEOUT_MS), "init_transactions");
    pthread_barrier_wait(&all_ready);
    for (long i = 1; i <= own->count; i++) {
        check(rd_kafka_begin_transaction(own->rk), "begin_transaction");
        for (long j = 0; j < own->records; j++)
            send_one(own->rk, own->topic, (int32_t)(j % own->partitions), value, own->size, NULL);
        if (own->aborted > 0 && i % own->aborted == 0) {
            rd_kafka_flush(own->rk, TIMEOUT_MS); /* what is not sent yet would never be */
            check(rd_kafka_abort_transaction(own->rk, TIMEOUT_MS), "abort_transaction");
            continue;
        }
        int64_t began = now_ns();
        check(rd_kafka_commit_transaction(own->rk, TIMEOUT_MS), "commit_transaction");
        own->commits_ns[own->commits++] = now_ns() - began;
    }
    free(value);
    return NULL;
}

static void transact(const char *bootstrap, const char *name, long size, long records, long count,
                     long producers, long partitions, long aborted) {
    struct transactor *all = calloc(producers, sizeof *all);
    int64_t *times = calloc(count, sizeof *times);
    pthread_barrier_init(&all_ready, NULL, producers + 1);
    for (long i = 0; i < producers; i++) {
        char id[64];
        snprintf(id, sizeof id, "%ld-%ld", (long)getpid(), i);
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set(conf, "transactional.id", id);
        set(conf, "log_level", "2");
        all[i].rk = client(RD_KAFKA_PRODUCER, conf, bootstrap);
        all[i].topic = warm_topic(all[i].rk, name);
        all[i].size = size, all[i].records = records, all[i].count = count / producers;
        all[i].partitions = partitions, all[i].aborted = aborted;
        all[i].commits_ns = calloc(all[i].count, sizeof *all[i].commits_ns);
        if (pthread_create(&all[i].thread, NULL, transact_one, &all[i]) != 0)
            fail("no thread", strerror(errno));
    }
    pthread_barrier_wait(&all_ready);
    int64_t started = now_ns();
    for (long i = 0; i < producers; i++) pthread_join(all[i].thread, NULL);
    int64_t elapsed = now_ns() - started;
    long commits = 0;
    for (long i = 0; i < producers; i++)
        for (long j = 0; j < all[i].commits; j++) times[commits++] = all[i].commits_ns[j];
    if (commits == 0) fail("transact", "nothing was committed");
    qsort(times, commits, sizeof *times, compare);
    printf("{\"elapsed_ns\": %ld, \"client_cpu_ns\": %ld, \"committed\": %ld, \"p50_ns\": %ld, "
           "\"p99_ns\": %ld}\n",
           (long)elapsed, (long)cpu_ns(), commits, (long)times[commits / 2],
           (long)times[commits * 99 / 100]);
    for (long i = 0; i < producers; i++) {
        rd_kafka_topic_destroy(all[i].topic);
        rd_kafka_destroy(all[i].rk);
        free(all[i].commits_ns);
    }
    free(times);
    free(all);
}

/* Creating a topic */

/* An empty message for each partition. A fresh topic is announced before it can be written to, and
 * a consumer that happens to ask for an empty partition first would wait there. */
static void touch(rd_kafka_t *rk, const char *name, long partitions) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, name, NULL);
    for (long i = 0; i < partitions; i++)
        if (rd_kafka_produce(topic, i, 0, NULL, 0, NULL, 0, NULL) == -1)
            fail(name, rd_kafka_err2str(rd_kafka_last_error()));
    rd_kafka_flush(rk, TIMEOUT_MS);
    check_delivered(partitions);
    rd_kafka_topic_destroy(topic);
}

static void create(const char *bootstrap, const char *name, long partitions) {
    char why[512];
    rd_kafka_t *rk = producer(bootstrap, "all", NULL);
    rd_kafka_NewTopic_t *topic = rd_kafka_NewTopic_new(name, partitions, 1, why, sizeof why);
    if (topic == NULL) fail(name, why);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_CreateTopics(rk, &topic, 1, NULL, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, TIMEOUT_MS);
    if (event == NULL) fail(name, "creating it was not answered");
    if (rd_kafka_event_error(event)) fail(name, rd_kafka_event_error_string(event));
    size_t results;
    const rd_kafka_topic_result_t **result =
        rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &results);
    if (rd_kafka_topic_result_error(result[0]))
        fail(name, rd_kafka_topic_result_error_string(result[0]));
    rd_kafka_event_destroy(event);
    touch(rk, name, partitions);
    printf("{}\n");
    rd_kafka_queue_destroy(queue);
    rd_kafka_NewTopic_destroy(topic);
    rd_kafka_destroy(rk);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "create") == 0 && argc == 5)
        create(argv[2], argv[3], number(argv[4]));
    else if (strcmp(mode, "produce") == 0 && argc == 7)
        produce(argv[2], argv[3], number(argv[4]), number(argv[5]), argv[6], 0);
    else if (strcmp(mode, "fill") == 0 && argc == 7)
        produce(argv[2], argv[3], number(argv[4]), number(argv[5]), "all", number(argv[6]));
    else if (strcmp(mode, "consume") == 0 && (argc == 6 || argc == 7))
        consume(argv[2], argv[3], number(argv[4]), number(argv[5]), argc == 7 ? argv[6] : NULL);
    else if (strcmp(mode, "transact") == 0 && argc == 10)
        transact(argv[2], argv[3], number(argv[4]), number(argv[5]), number(argv[6]),
                 number(argv[7]), number(argv[8]), number(argv[9]));
    else if (strcmp(mode, "latency") == 0 && argc == 7)
        latency(argv[2], argv[3], number(argv[4]), number(argv[5]), number(argv[6]), 0);
    else if (strcmp(mode, "beside") == 0 && argc == 7)
        latency(argv[2], argv[3], number(argv[4]), number(argv[5]), number(argv[6]), 1);
    else
        fail("usage", "create|produce|fill|consume|latency|beside|transact, see the top of the source");
    return 0;
}
