/* Requests from a file, sent again and again over many connections, each answer compared.
 *
 *   frame_replayer HOST PORT FILE CONNECTIONS DEPTH REQUESTS
 *
 * FILE holds pairs of frames: a request with its length, and the answer to it with its length, byte
 * for byte. Connection n sends the pairs n, n + CONNECTIONS, n + 2 * CONNECTIONS, ... round and
 * round, with DEPTH requests in flight. Prints one line of JSON; exits with 1 at the first answer
 * that differs.
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

#define MAX_ANSWER 4096
#define STALL_MS 60000

static void fail(const char *what, const char *why) {
    fprintf(stderr, "frame_replayer: %s: %s\n", what, why);
    exit(1);
}

static int64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static size_t frame_size(const uint8_t *at) {
    return 4 + ((size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3]);
}

struct pair {
    const uint8_t *request, *answer;
    size_t request_size, answer_size;
};

static struct pair *load_pairs(const char *path, long *count) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail(path, strerror(errno));
    fseek(file, 0, SEEK_END);
    size_t size = ftell(file), at = 0;
    rewind(file);
    uint8_t *data = malloc(size);
    if (data == NULL || fread(data, 1, size, file) != size) fail(path, "cannot be read");
    fclose(file);
    struct pair *pairs = NULL;
    for (*count = 0; at < size; ++*count) {
        pairs = realloc(pairs, (*count + 1) * sizeof *pairs);
        if (pairs == NULL) fail("memory", "exhausted");
        struct pair *one = &pairs[*count];
        one->request = data + at;
        one->request_size = frame_size(data + at);
        at += one->request_size;
        if (at + 4 > size) fail(path, "a request without an answer");
        one->answer = data + at;
        one->answer_size = frame_size(data + at);
        at += one->answer_size;
        if (at > size || one->answer_size > MAX_ANSWER) fail(path, "a frame is too long");
    }
    if (*count == 0) fail(path, "is empty");
    return pairs;
}

struct connection {
    int fd;
    int wants_write;
    long next_sent, next_answered; /* indexes of pairs */
    long unsent;                   /* requests to send, the one under way included */
    size_t sent;                   /* bytes of the request under way */
    uint8_t answer[MAX_ANSWER];
    size_t received;
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

static long following(long index, long first, long step, long count) {
    return index + step < count ? index + step : first;
}

int main(int argc, char **argv) {
    if (argc != 7) fail("usage", "see the top of the source");
    long pair_count, connections = atol(argv[4]), depth = atol(argv[5]), requests = atol(argv[6]);
    if (connections < 1 || depth < 1 || requests < 1) fail("numbers", "must be positive");
    struct pair *pairs = load_pairs(argv[3], &pair_count);
    struct connection *all = calloc(connections, sizeof *all);
    int poller = epoll_create1(0);
    for (long i = 0; i < connections; i++) {
        all[i].fd = connect_to(argv[1], argv[2]);
        all[i].next_sent = all[i].next_answered = i % pair_count;
        watch(poller, EPOLL_CTL_ADD, &all[i]);
    }
    long started_requests = 0, answered = 0;
    int64_t started = now_ns(CLOCK_MONOTONIC);
    for (long i = 0; i < connections; i++)
        for (long j = 0; j < depth && started_requests < requests; j++) {
            all[i].unsent++;
            started_requests++;
        }
    struct epoll_event events[64];
    for (long i = 0; i < connections; i++) {
        all[i].wants_write = 1;
        watch(poller, EPOLL_CTL_MOD, &all[i]);
    }
    while (answered < requests) {
        int count = epoll_wait(poller, events, 64, STALL_MS);
        if (count == 0) fail("stalled", "no answer came");
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            long first = (c - all) % pair_count;
            if (events[i].events & EPOLLIN) {
                ssize_t got = recv(c->fd, c->answer + c->received, MAX_ANSWER - c->received, 0);
                if (got == 0) fail("receive", "the server closed the connection");
                if (got < 0 && errno != EAGAIN) fail("receive", strerror(errno));
                if (got > 0) c->received += got;
                size_t at = 0;
                while (c->received - at >= 4 && c->received - at >= frame_size(c->answer + at)) {
                    const struct pair *expected = &pairs[c->next_answered];
                    size_t size = frame_size(c->answer + at);
                    if (size != expected->answer_size ||
                        memcmp(c->answer + at, expected->answer, size) != 0)
                        fail("answer", "differs from what was expected");
                    at += size;
                    answered++;
                    c->next_answered = following(c->next_answered, first, connections, pair_count);
                    if (started_requests < requests) {
                        c->unsent++;
                        started_requests++;
                    }
                }
                c->received -= at;
                memmove(c->answer, c->answer + at, c->received);
            }
            int is_full = 0;
            while (c->unsent > 0 && !is_full) {
                const struct pair *one = &pairs[c->next_sent];
                size_t rest = one->request_size - c->sent;
                ssize_t count_sent = send(c->fd, one->request + c->sent, rest, MSG_NOSIGNAL);
                if (count_sent < 0 && errno != EAGAIN) fail("send", strerror(errno));
                if (count_sent > 0) c->sent += count_sent;
                is_full = count_sent < (ssize_t)rest;
                if (!is_full) {
                    c->unsent--;
                    c->sent = 0;
                    c->next_sent = following(c->next_sent, first, connections, pair_count);
                }
            }
            if (is_full != c->wants_write) {
                c->wants_write = is_full;
                watch(poller, EPOLL_CTL_MOD, c);
            }
        }
    }
    int64_t elapsed = now_ns(CLOCK_MONOTONIC) - started;
    printf("{\"elapsed_ns\": %ld, \"client_cpu_ns\": %ld, \"requests\": %ld}\n", (long)elapsed,
           (long)now_ns(CLOCK_PROCESS_CPUTIME_ID), requests);
    return 0;
}
