/* One record to many waiting consumers: how long until all of them have it.
 *
 *   waker HOST PORT TOPIC CONSUMERS RECORD_SIZE ROUNDS
 *
 * Every consumer has a Fetch request waiting at the end of partition 0 (version 11, without a
 * session, one byte is enough). In each round one Produce request (version 7, acks=all) writes one
 * record; the round ends when every consumer has it, and each asks for the next offset. A pause
 * between the rounds lets the server park all requests first. Prints one line of JSON: the median
 * and the mean of the times from sending the record to the last consumer's answer; exits with 1 at
 * the first answer with an error or without the record.
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

#define MAX_FRAME 65536
#define STALL_MS 60000
#define PAUSE_NS 5000000 /* for the server to park what the consumers sent */

static void fail(const char *what, const char *why) {
    fprintf(stderr, "waker: %s: %s\n", what, why);
    exit(1);
}

static int64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void store(uint8_t *at, uint64_t value, int bytes) {
    while (bytes-- > 0) {
        at[bytes] = (uint8_t)value;
        value >>= 8;
    }
}

static uint64_t load(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | at[i];
    return value;
}

/* Building requests */

struct frame {
    uint8_t data[MAX_FRAME];
    size_t size;
};

static void put(struct frame *f, uint64_t value, int bytes) {
    if (f->size + bytes > MAX_FRAME) fail("request", "too long");
    store(f->data + f->size, value, bytes);
    f->size += bytes;
}

static void put_string(struct frame *f, const char *text) {
    put(f, strlen(text), 2);
    for (; *text != '\0'; text++) put(f, *text, 1);
}

static void put_varint(struct frame *f, int64_t value) {
    uint64_t zigzag = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    for (; zigzag >= 0x80; zigzag >>= 7) put(f, (zigzag & 0x7f) | 0x80, 1);
    put(f, zigzag, 1);
}

static int varint_size(int64_t value) {
    struct frame scratch;
    scratch.size = 0;
    put_varint(&scratch, value);
    return (int)scratch.size;
}

static void begin(struct frame *f, int api_key, int version) {
    f->size = 0;
    put(f, 0, 4); /* length of the frame */
    put(f, api_key, 2);
    put(f, version, 2);
    put(f, 0, 4); /* correlation id */
    put_string(f, "waker");
}

static uint32_t crc32c(const uint8_t *data, size_t size) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

static void build_produce(struct frame *f, const char *topic, long record_size) {
    int64_t now_ms = now_ns(CLOCK_REALTIME) / 1000000;
    begin(f, 0, 7);
    put(f, (uint64_t)-1, 2); /* no transactional id */
    put(f, (uint64_t)-1, 2); /* acks=all */
    put(f, 30000, 4);        /* timeout */
    put(f, 1, 4);
    put_string(f, topic);
    put(f, 1, 4);
    put(f, 0, 4); /* partition */
    size_t length_at = f->size;
    put(f, 0, 4); /* length of the batch */
    size_t batch = f->size;
    put(f, 0, 8);            /*  0 base offset            */
    put(f, 0, 4);            /*  8 length of what follows */
    put(f, (uint64_t)-1, 4); /* 12 leader epoch           */
    put(f, 2, 1);            /* 16 magic                  */
    put(f, 0, 4);            /* 17 crc of what follows    */
    put(f, 0, 2);            /* 21 attributes             */
    put(f, 0, 4);            /* 23 last offset delta      */
    put(f, now_ms, 8);       /* 27 base timestamp         */
    put(f, now_ms, 8);       /* 35 max timestamp          */
    put(f, (uint64_t)-1, 8); /* 43 producer id            */
    put(f, (uint64_t)-1, 2); /* 51 producer epoch         */
    put(f, (uint64_t)-1, 4); /* 53 base sequence          */
    put(f, 1, 4);            /* 57 record count           */
    /* attributes, timestamp delta, offset delta, no key: a byte each; then the value, no headers */
    put_varint(f, 4 + varint_size(record_size) + record_size + 1);
    put(f, 0, 1);
    put_varint(f, 0);
    put_varint(f, 0);
    put_varint(f, -1);
    put_varint(f, record_size);
    for (long i = 0; i < record_size; i++) put(f, 'x', 1);
    put_varint(f, 0);
    size_t size = f->size - batch;
    store(f->data + batch + 8, size - 12, 4);
    store(f->data + batch + 17, crc32c(f->data + batch + 21, size - 21), 4);
    store(f->data + length_at, size, 4);
    store(f->data, f->size - 4, 4);
}

/* Returns where the offset stands, which every round sets anew. */
static size_t build_fetch(struct frame *f, const char *topic) {
    begin(f, 1, 11);
    put(f, (uint64_t)-1, 4); /* a consumer, not a replica */
    put(f, STALL_MS, 4);     /* longest wait */
    put(f, 1, 4);            /* bytes to wait for */
    put(f, 1 << 20, 4);      /* bytes at most */
    put(f, 0, 1);            /* isolation level */
    put(f, 0, 4);            /* no session */
    put(f, (uint64_t)-1, 4); /* and none to be made */
    put(f, 1, 4);
    put_string(f, topic);
    put(f, 1, 4);
    put(f, 0, 4);            /* partition */
    put(f, (uint64_t)-1, 4); /* leader epoch: not compared */
    size_t offset_at = f->size;
    put(f, 0, 8);            /* offset */
    put(f, (uint64_t)-1, 8); /* log start, of followers */
    put(f, 1 << 20, 4);      /* bytes of the partition at most */
    put(f, 0, 4);            /* no partition is forgotten */
    put_string(f, "");       /* rack */
    store(f->data, f->size - 4, 4);
    return offset_at;
}

/* Connections */

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

static void send_frame(int fd, const struct frame *f) {
    /* A request that waits for its answer always fits into the socket's buffer. */
    if (send(fd, f->data, f->size, MSG_NOSIGNAL) != (ssize_t)f->size) fail("send", "cut short");
}

struct connection {
    int fd;
    uint8_t answer[MAX_FRAME];
    size_t received;
};

/* Receives once; whether an answer is whole. */
static int receive(struct connection *c) {
    ssize_t count = recv(c->fd, c->answer + c->received, MAX_FRAME - c->received, 0);
    if (count == 0) fail("receive", "the server closed the connection");
    if (count < 0) {
        if (errno == EAGAIN) return 0;
        fail("receive", strerror(errno));
    }
    c->received += count;
    if (c->received < 4) return 0;
    size_t size = 4 + load(c->answer, 4);
    if (size > MAX_FRAME || c->received > size) fail("answer", "longer than was asked for");
    if (c->received < size) return 0;
    return 1;
}

/* Produce: length 4, correlation id 4, topics 4, name 2 + n, partitions 4, index 4, error 2, offset 8.
 * Returns the offset of the record. */
static int64_t parse_produced(const struct connection *c, size_t topic_size) {
    const uint8_t *at = c->answer + 4 + 4 + 4 + 2 + topic_size + 4 + 4;
    if (load(at, 2) != 0) fail("produce", "the answer has an error code");
    return (int64_t)load(at + 2, 8);
}

/* Fetch: length 4, correlation id 4, throttle time 4, error 2, session 4, topics 4, name 2 + n,
 * partitions 4, index 4, error 2, high watermark 8, last stable offset 8, log start 8, aborted 4
 * (none), replica 4, length of the records 4. */
static void check_fetched(const struct connection *c, size_t topic_size) {
    size_t error_at = 4 + 4 + 4 + 2 + 4 + 4 + 2 + topic_size + 4 + 4;
    if (load(c->answer + 12, 2) != 0 || load(c->answer + error_at, 2) != 0)
        fail("fetch", "the answer has an error code");
    int32_t size = (int32_t)load(c->answer + error_at + 2 + 8 + 8 + 8 + 4 + 4, 4);
    if (size <= 0) fail("fetch", "the answer has no record");
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

static void pause_for(long ns) {
    struct timespec t = {0, ns};
    nanosleep(&t, NULL);
}

int main(int argc, char **argv) {
    if (argc != 7) fail("usage", "see the top of the source");
    const char *topic = argv[3];
    long consumers = number(argv[4]), record_size = number(argv[5]), rounds = number(argv[6]);
    static struct frame produce, fetch;
    build_produce(&produce, topic, record_size);
    size_t offset_at = build_fetch(&fetch, topic), topic_size = strlen(topic);
    struct connection *all = calloc(consumers + 1, sizeof *all), *producer = &all[consumers];
    if (all == NULL) fail("memory", "exhausted");
    int poller = epoll_create1(0);
    for (long i = 0; i <= consumers; i++) {
        all[i].fd = connect_to(argv[1], argv[2]);
        struct epoll_event event = {EPOLLIN, {.ptr = &all[i]}};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, all[i].fd, &event) != 0) fail("epoll", strerror(errno));
    }
    int64_t *times = calloc(rounds, sizeof *times), total = 0, next_offset = -1;
    struct epoll_event events[64];
    /* The first round, which is not counted, tells where the log ends. */
    for (long round = -1; round < rounds; round++) {
        long waiting = round < 0 ? 0 : consumers;
        int is_written = 0;
        int64_t started = now_ns(CLOCK_MONOTONIC), served = started;
        send_frame(producer->fd, &produce);
        while (waiting > 0 || !is_written) {
            int count = epoll_wait(poller, events, 64, STALL_MS);
            if (count == 0) fail("stalled", "no answer came");
            for (int i = 0; i < count; i++) {
                struct connection *c = events[i].data.ptr;
                if (!receive(c)) continue;
                if (c == producer) {
                    next_offset = parse_produced(c, topic_size) + 1;
                    is_written = 1;
                } else {
                    check_fetched(c, topic_size);
                    if (--waiting == 0) served = now_ns(CLOCK_MONOTONIC);
                }
                c->received = 0;
            }
        }
        if (round >= 0) {
            times[round] = served - started;
            total += served - started;
        }
        if (round == rounds - 1) break;
        store(fetch.data + offset_at, next_offset, 8);
        for (long i = 0; i < consumers; i++) send_frame(all[i].fd, &fetch);
        pause_for(PAUSE_NS);
    }
    qsort(times, rounds, sizeof *times, compare);
    printf("{\"p50_ns\": %ld, \"mean_ns\": %ld, \"client_cpu_ns\": %ld, \"rounds\": %ld}\n",
           (long)times[rounds / 2], (long)(total / rounds),
           (long)now_ns(CLOCK_PROCESS_CPUTIME_ID), rounds);
    return 0;
}
