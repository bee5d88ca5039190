/* One Produce request, sent again and again over many connections: what a server does per request.
 *
 *   request_replayer HOST PORT TOPIC PARTITIONS CONNECTIONS DEPTH RECORDS RECORD_SIZE REQUESTS
 *                    VERSION plain|idempotent
 *
 * Connection n writes to partition n % PARTITIONS and keeps DEPTH requests in flight. A request
 * (version 3 to 8, acks=all) holds one batch of RECORDS records. In an idempotent load each
 * connection asks the server for a producer id of its own and numbers its batches. Prints one line
 * of JSON, with percentiles of the time from request to answer where DEPTH is 1; exits with 1 at the first answer with an error.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BATCH_HEADER 61
#define MAX_ANSWER 512 /* of one topic and one partition */
#define STALL_MS 60000

static void fail(const char *what, const char *why) {
    fprintf(stderr, "request_replayer: %s: %s\n", what, why);
    exit(1);
}

static int64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Building the request */

struct buffer {
    uint8_t *data;
    size_t size, room;
};

static uint8_t *extend(struct buffer *b, size_t count) {
    if (b->size + count > b->room) {
        b->room = (b->size + count) * 2;
        b->data = realloc(b->data, b->room);
        if (b->data == NULL) fail("memory", "exhausted");
    }
    b->size += count;
    return b->data + b->size - count;
}

static void store(uint8_t *at, uint64_t value, int bytes) {
    while (bytes-- > 0) {
        at[bytes] = (uint8_t)value;
        value >>= 8;
    }
}

static void put(struct buffer *b, uint64_t value, int bytes) {
    store(extend(b, bytes), value, bytes);
}

static void put_bytes(struct buffer *b, const void *data, size_t count) {
    memcpy(extend(b, count), data, count);
}

static void put_string(struct buffer *b, const char *text) {
    put(b, strlen(text), 2);
    put_bytes(b, text, strlen(text));
}

static void put_varint(struct buffer *b, int64_t value) {
    uint64_t zigzag = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    for (; zigzag >= 0x80; zigzag >>= 7) put(b, (zigzag & 0x7f) | 0x80, 1);
    put(b, zigzag, 1);
}

static uint32_t crc_table[256];

static void fill_crc_table(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
        crc_table[byte] = crc;
    }
}

static uint32_t crc32c(const uint8_t *data, size_t size) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++) crc = crc >> 8 ^ crc_table[(crc ^ data[i]) & 0xff];
    return ~crc;
}

/* 61 bytes of header, then the records. Lengths and the checksum are filled in at the end. */
static void put_batch(struct buffer *b, long records, long record_size, int64_t timestamp) {
    size_t start = b->size;
    put(b, 0, 8);                       /*  0 base offset            */
    put(b, 0, 4);                       /*  8 length of what follows */
    put(b, (uint64_t)-1, 4);            /* 12 leader epoch           */
    put(b, 2, 1);                       /* 16 magic                  */
    put(b, 0, 4);                       /* 17 crc of what follows    */
    put(b, 0, 2);                       /* 21 attributes             */
    put(b, records - 1, 4);             /* 23 last offset delta      */
    put(b, timestamp, 8);               /* 27 base timestamp         */
    put(b, timestamp, 8);               /* 35 max timestamp          */
    put(b, (uint64_t)-1, 8);            /* 43 producer id            */
    put(b, (uint64_t)-1, 2);            /* 51 producer epoch         */
    put(b, (uint64_t)-1, 4);            /* 53 base sequence          */
    put(b, records, 4);                 /* 57 record count           */
    for (long i = 0; i < records; i++) {
        struct buffer record = {0};
        put(&record, 0, 1);             /* attributes */
        put_varint(&record, 0);         /* timestamp delta */
        put_varint(&record, i);         /* offset delta */
        put_varint(&record, -1);        /* no key */
        put_varint(&record, record_size);
        memset(extend(&record, record_size), 'x', record_size);
        put_varint(&record, 0);         /* headers */
        put_varint(b, record.size);
        put_bytes(b, record.data, record.size);
        free(record.data);
    }
    uint8_t *batch = b->data + start;
    size_t size = b->size - start;
    store(batch + 8, size - 12, 4);
    store(batch + 17, crc32c(batch + 21, size - 21), 4);
}

struct request {
    struct buffer frame;
    size_t batch;             /* where the batch begins; it ends with the frame */
};

static struct request build_request(const char *topic, int partition, long records, long size,
                                    int version) {
    struct buffer b = {0}, batch = {0};
    put(&b, 0, 4);                      /* length of the frame */
    put(&b, 0, 2);                      /* Produce */
    put(&b, version, 2);
    put(&b, 0, 4);                      /* correlation id */
    put_string(&b, "replayer");
    put(&b, (uint64_t)-1, 2);           /* no transactional id */
    put(&b, (uint64_t)-1, 2);           /* acks=all */
    put(&b, 30000, 4);                  /* timeout */
    put(&b, 1, 4);
    put_string(&b, topic);
    put(&b, 1, 4);
    put(&b, partition, 4);
    put_batch(&batch, records, size, now_ns(CLOCK_REALTIME) / 1000000);
    put(&b, batch.size, 4);
    put_bytes(&b, batch.data, batch.size);
    size_t batch_size = batch.size;
    free(batch.data);
    store(b.data, b.size - 4, 4);
    return (struct request){b, b.size - batch_size};
}

/* Makes the batch of a request the next one of a producer. */
static void number_batch(struct request *r, int64_t producer_id, int32_t sequence) {
    uint8_t *batch = r->frame.data + r->batch;
    store(batch + 43, producer_id, 8);
    store(batch + 51, 0, 2);            /* its first epoch */
    store(batch + 53, sequence, 4);
    store(batch + 17, crc32c(batch + 21, r->frame.size - r->batch - 21), 4);
}

/* Connections */

struct connection {
    int fd;
    int wants_write;
    struct request *request;
    int64_t producer_id;  /* -1: the load is not idempotent, and the request is shared */
    int32_t sequence, records;
    long unsent;          /* requests to send, the one under way included */
    size_t sent;          /* bytes of the request under way */
    int64_t sent_at;      /* when its last request began to leave */
    uint8_t answer[MAX_ANSWER];
    size_t received;      /* bytes of the answer under way */
};

static int connect_to(const char *host, const char *port) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, port, &hints, &found) != 0) fail(host, "unknown host");
    int fd = socket(found->ai_family, SOCK_STREAM, 0), one = 1;
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) != 0) fail(host, strerror(errno));
    freeaddrinfo(found);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void watch(int poller, int operation, struct connection *c) {
    struct epoll_event event = {EPOLLIN | (c->wants_write ? EPOLLOUT : 0), {.ptr = c}};
    if (epoll_ctl(poller, operation, c->fd, &event) != 0) fail("epoll", strerror(errno));
}

static void send_requests(int poller, struct connection *c) {
    int is_full = 0;
    while (c->unsent > 0 && !is_full) {
        if (c->sent == 0 && c->producer_id >= 0) {
            number_batch(c->request, c->producer_id, c->sequence);
            c->sequence += c->records;
        }
        if (c->sent == 0) c->sent_at = now_ns(CLOCK_MONOTONIC);
        size_t rest = c->request->frame.size - c->sent;
        ssize_t count = send(c->fd, c->request->frame.data + c->sent, rest, MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN) fail("send", strerror(errno));
        if (count > 0) c->sent += count;
        is_full = count < (ssize_t)rest;
        if (!is_full) {
            c->unsent--;
            c->sent = 0;
        }
    }
    if (is_full != c->wants_write) {
        c->wants_write = is_full;
        watch(poller, EPOLL_CTL_MOD, c);
    }
}

static uint64_t load(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | at[i];
    return value;
}

/* Asks for a producer id (InitProducerId version 1) and waits for it. The answer: length 4,
 * correlation id 4, throttle time 4, error 2, producer id 8, epoch 2. */
static int64_t ask_for_producer_id(const char *host, const char *port) {
    struct buffer b = {0};
    uint8_t answer[24];
    put(&b, 0, 4);
    put(&b, 22, 2);
    put(&b, 1, 2);
    put(&b, 0, 4);                      /* correlation id */
    put_string(&b, "replayer");
    put(&b, (uint64_t)-1, 2);           /* no transactional id */
    put(&b, 60000, 4);                  /* transaction timeout */
    store(b.data, b.size - 4, 4);
    for (int attempt = 0; attempt < 100; attempt++) {
        int fd = connect_to(host, port);
        fcntl(fd, F_SETFL, 0);
        if (send(fd, b.data, b.size, MSG_NOSIGNAL) != (ssize_t)b.size) fail("send", "cut short");
        if (recv(fd, answer, sizeof answer, MSG_WAITALL) != sizeof answer)
            fail("producer id", "the answer was cut short");
        close(fd);
        if (load(answer + 12, 2) == 0) {
            free(b.data);
            return (int64_t)load(answer + 14, 8);
        }
        usleep(100000);                 /* The server gets a block of ids first. */
    }
    fail("producer id", "the server gives none");
    return -1;
}

/* Length 4, correlation id 4, topics 4, name 2 + n, partitions 4, index 4, error 2. */
static void check_answer(const uint8_t *answer, size_t size, size_t topic_size) {
    size_t at = 4 + 4 + 4 + 2 + topic_size + 4 + 4;
    char why[64];
    if (size < at + 2) fail("answer", "too short");
    int error = (int16_t)load(answer + at, 2);
    snprintf(why, sizeof why, "error code %d", error);
    if (error != 0) fail("answer", why);
}

/* Receives once; returns how many answers ended. */
static long receive_answers(struct connection *c, size_t topic_size) {
    ssize_t count = recv(c->fd, c->answer + c->received, MAX_ANSWER - c->received, 0);
    if (count == 0) fail("receive", "the server closed the connection");
    if (count < 0) {
        if (errno == EAGAIN) return 0;
        fail("receive", strerror(errno));
    }
    c->received += count;
    long answers = 0;
    size_t at = 0;
    while (c->received - at >= 4) {
        size_t size = 4 + load(c->answer + at, 4);
        if (size > MAX_ANSWER) fail("answer", "too long");
        if (c->received - at < size) break;
        check_answer(c->answer + at, size, topic_size);
        answers++;
        at += size;
    }
    c->received -= at;
    memmove(c->answer, c->answer + at, c->received);
    return answers;
}

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static long number(const char *text) {
    char *end;
    long value = strtol(text, &end, 10);
    if (*end != '\0' || value < 1) fail("not a positive number", text);
    return value;
}

int main(int argc, char **argv) {
    if (argc != 12) fail("usage", "see the top of the source");
    const char *topic = argv[3];
    long partitions = number(argv[4]), connections = number(argv[5]), depth = number(argv[6]);
    long records = number(argv[7]), record_size = number(argv[8]), requests = number(argv[9]);
    long version = number(argv[10]);
    if (version < 3 || version > 8) fail("version", "has another layout, 3 to 8 are alike");
    int is_idempotent = strcmp(argv[11], "idempotent") == 0;
    if (!is_idempotent && strcmp(argv[11], "plain") != 0) fail("kind of load", argv[11]);
    fill_crc_table();
    /* One for each partition; in an idempotent load one for each connection. */
    long template_count = is_idempotent ? connections : partitions;
    struct request *templates = calloc(template_count, sizeof *templates);
    for (long i = 0; i < template_count; i++)
        templates[i] = build_request(topic, i % partitions, records, record_size, version);
    struct connection *all = calloc(connections, sizeof *all);
    int poller = epoll_create1(0);
    for (long i = 0; i < connections; i++) {
        all[i].fd = connect_to(argv[1], argv[2]);
        all[i].request = &templates[i % template_count];
        all[i].records = (int32_t)records;
        all[i].producer_id = is_idempotent ? ask_for_producer_id(argv[1], argv[2]) : -1;
        watch(poller, EPOLL_CTL_ADD, &all[i]);
    }
    long started_requests = 0, answered = 0;
    int64_t *latencies = calloc(requests + 1, sizeof *latencies);
    int64_t started = now_ns(CLOCK_MONOTONIC);
    for (long i = 0; i < connections; i++) {
        long first = depth < requests - started_requests ? depth : requests - started_requests;
        all[i].unsent = first;
        started_requests += first;
        send_requests(poller, &all[i]);
    }
    struct epoll_event events[64];
    while (answered < requests) {
        int count = epoll_wait(poller, events, 64, STALL_MS);
        if (count == 0) fail("stalled", "no answer came");
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLIN) {
                long answers = receive_answers(c, strlen(topic));
                if (depth == 1 && answers == 1)
                    latencies[answered] = now_ns(CLOCK_MONOTONIC) - c->sent_at;
                answered += answers;
                for (; answers > 0 && started_requests < requests; answers--) {
                    c->unsent++;
                    started_requests++;
                }
            }
            send_requests(poller, c);
        }
    }
    int64_t elapsed = now_ns(CLOCK_MONOTONIC) - started;
    qsort(latencies, requests, sizeof *latencies, compare);
    if (depth == 1)
        printf("{\"p50_ns\": %ld, \"p99_ns\": %ld, ", (long)latencies[requests / 2],
               (long)latencies[requests * 99 / 100]);
    else
        printf("{");
    printf("\"elapsed_ns\": %ld, \"client_cpu_ns\": %ld, \"requests\": %ld, \"bytes\": %ld}\n",
           (long)elapsed, (long)now_ns(CLOCK_PROCESS_CPUTIME_ID), requests,
           (long)(templates[0].frame.size * requests));
    return 0;
}
