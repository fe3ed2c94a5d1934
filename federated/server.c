/*
 * server.c - the server's loop: one thread with epoll for all connections.
 *
 * Events of the listener, of connections, of the two pools and of fgf_server_stop() wake it; deadlines are looked at
 * some times a second. Clocks are monotonic, so that a change of the machine's time has no effect.
 */
#define _GNU_SOURCE /* accept4 */
#include "federated/server_internal.h"

#include "base/clock.h"
#include "io/files.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define EVENTS       64
#define TICK_MS      200
#define ACCEPT_BURST 64
#define FILES_BESIDE 64u /* descriptors that the process needs besides two of each connection */

void fgf_server_log(fgf_server *s, const char *format, ...) {
    char line[1024];
    va_list args;
    if (!s->options.log)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    s->options.log(s->options.ctx, line);
}

/* ---- the list of clients ---- */

static int copy_allowed(const fgf_allow_list *from, fgf_allow_list *to) {
    to->client = malloc((from->count + 1) * sizeof *to->client);
    if (!to->client)
        return -1;
    if (from->count)
        memcpy(to->client, from->client, from->count * sizeof *to->client);
    to->count = from->count;
    return 0;
}

/* A number that changes with the file. */
static int64_t file_time(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 ? (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec + info.st_size
                                  : -1;
}

/* A client that is no longer listed is let go at once; a list that cannot be read changes nothing. */
static void reread_allowed(fgf_server *s) {
    fgf_allow_list list = {0};
    fgio_reason why;
    int64_t now = s->options.clients_file ? file_time(s->options.clients_file) : s->allowed_time;
    if (now == s->allowed_time)
        return;
    s->allowed_time = now;
    if (fgf_allow_list_read(s->options.clients_file, &list, &why) != 0) {
        fgf_server_log(s, "the list of clients is unchanged: %s", why.text);
        return;
    }
    fgf_allow_list_free(&s->allowed);
    s->allowed = list;
    fgf_server_log(s, "the list of clients was read again: %zu clients", list.count);
    for (fgf_connection *c = s->connections; c; c = c->next)
        if (c->stage != FGF_STAGE_HANDSHAKE && !fgf_allow_list_find(&list, &c->key)) {
            fgf_server_log(s, "%s: no longer in the list of clients", c->name);
            c->closed = true;
        }
}

static bool admit_client(void *ctx, const fgf_public_key *key) {
    return fgf_allow_list_find(&((fgf_server *)ctx)->allowed, key) != NULL;
}

static int open_allowed(fgf_server *s, fgio_reason *why) {
    if (!s->options.clients_file)
        return copy_allowed(s->options.clients, &s->allowed) == 0 ? 0 : fgio_fail(why, "not enough memory");
    s->allowed_time = file_time(s->options.clients_file);
    if (fgf_allow_list_read(s->options.clients_file, &s->allowed, why) != 0)
        return -1;
    return s->allowed.count ? 0 : fgio_fail(why, "%s: no client is listed", s->options.clients_file);
}

/* ---- creation ---- */

/* A connection has two files: the socket, and an update that arrives. */
size_t fgf_connections_max(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur < 2 * FILES_BESIDE)
        return FILES_BESIDE / 2;
    return (files.rlim_cur - FILES_BESIDE) / 2;
}

/* An event has the address of the descriptor that it is of, or of a connection. */
static int watch(fgf_server *s, int *fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = fd};
    return epoll_ctl(s->epoll, EPOLL_CTL_ADD, *fd, &event);
}

static int open_threads(fgf_server *s, fgio_reason *why) {
    int threads = s->options.threads;
    s->scratch = calloc((size_t)threads, sizeof *s->scratch);
    s->decoder = calloc((size_t)threads, sizeof *s->decoder);
    bool made = s->scratch && s->decoder;
    for (int i = 0; made && i < threads; i++) {
        s->scratch[i] = i == 0 ? s->state->mean : i == 1 ? s->state->next : malloc(s->count * sizeof **s->scratch);
        made = s->scratch[i] && frug_decoder_create(s->state->update_layout, 1, &s->decoder[i]) == FRUG_OK;
    }
    s->pool = made ? fgf_pool_create(threads) : NULL;
    s->closer = made ? fgf_pool_create(1) : NULL;
    return s->pool && s->closer ? 0 : fgio_fail(why, "not enough memory or threads for a model of this size");
}

static int open_sockets(fgf_server *s, fgio_reason *why) {
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->listener = fgf_tcp_listen(s->options.listen, &s->port, why);
    if (s->listener < 0)
        return -1;
    s->pool_event = fgf_pool_fd(s->pool);
    s->closer_event = fgf_pool_fd(s->closer);
    if (s->epoll < 0 || s->stop_event < 0 || watch(s, &s->listener) || watch(s, &s->stop_event) ||
        watch(s, &s->pool_event) || watch(s, &s->closer_event))
        return fgio_fail(why, "epoll: %s", strerror(errno));
    return 0;
}

/* The history is read first, because opening the file drops lines that are incomplete. */
static int open_rounds_file(fgf_server *s, fgio_reason *why) {
    char path[FGF_PATH_MAX];
    uint64_t left_out;
    snprintf(path, sizeof path, "%s/rounds.jsonl", s->options.state.directory);
    if (fgf_history_read(path, s->round, s->options.rule.rounds, &s->history, &left_out, why) != 0)
        return -1;
    if (left_out)
        fgf_server_log(s, "%s: %llu line%s damaged, or not of a round before round %llu: left out of the history", path,
                       (unsigned long long)left_out, left_out == 1 ? " is" : "s are", (unsigned long long)s->round);
    return fgio_metrics_open(path, s->round, &s->rounds_file) == FGIO_EXIT_OK
               ? 0
               : fgio_fail(why, "%s cannot be written", path);
}

static int open_state(fgf_server *s, fgio_reason *why) {
    bool resumed;
    if (fgf_state_open(&s->options.state, &s->state, &s->book, &resumed, why) != 0 ||
        fgf_state_upload_max(s->state, &s->upload_max, why) != 0)
        return -1;
    s->round = s->state->round;
    s->run = s->state->run;
    s->published = true;
    s->count = s->state->count;
    s->layout_hash = frug_layout_hash(s->options.state.layout);
    if (resumed)
        fgf_server_log(s, "continues at round %llu of %llu", (unsigned long long)s->round,
                       (unsigned long long)s->options.rule.rounds);
    if (fgf_round_recover(s, why) != 0)
        return -1;
    return open_rounds_file(s, why);
}

int fgf_server_create(const fgf_server_options *options, fgf_server **out, fgio_reason *why) {
    fgf_server *s = calloc(1, sizeof *s);
    if (!s)
        return fgio_fail(why, "not enough memory");
    s->options = *options;
    s->options.threads = options->threads > 0 ? options->threads : 1;
    s->listener = s->epoll = -1;
    s->stop_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    s->started = frugi_clock();
    pthread_mutex_init(&s->status_lock, NULL);
    int status = open_allowed(s, why);
    if (status == 0)
        status = fgf_tls_create(options->key, true, admit_client, s, &s->tls, why);
    if (status == 0)
        status = open_state(s, why);
    if (status == 0)
        status = open_threads(s, why);
    if (status == 0)
        status = open_sockets(s, why);
    if (status == 0)
        *out = s;
    else
        fgf_server_destroy(s);
    return status;
}

static void close_descriptors(fgf_server *s) {
    const int all[] = {s->listener, s->epoll, s->stop_event};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] >= 0)
            close(all[i]);
}

void fgf_server_destroy(fgf_server *s) {
    if (!s)
        return;
    fgf_pool_destroy(s->pool);
    fgf_pool_destroy(s->closer);
    while (s->connections) {
        fgf_connection *c = s->connections;
        s->connections = c->next;
        fgf_connection_free(c);
    }
    while (s->blobs)
        fgf_blob_release(s, s->blobs);
    while (s->checks) {
        fgf_check *check = s->checks;
        s->checks = check->next;
        if (check->fd >= 0)
            close(check->fd);
        free(check);
    }
    for (int i = 0; i < s->options.threads; i++) {
        if (s->scratch && i > 1)
            free(s->scratch[i]);
        if (s->decoder)
            frug_decoder_destroy(s->decoder[i]);
    }
    free(s->scratch);
    free(s->decoder);
    free(s->updates);
    free(s->close.updates);
    fgf_book_free(&s->close.book);
    fgf_book_free(&s->book);
    fgf_allow_list_free(&s->allowed);
    fgf_tls_destroy(s->tls);
    fgf_state_close(s->state);
    fgio_metrics_close(s->rounds_file);
    close_descriptors(s);
    pthread_mutex_destroy(&s->status_lock);
    free(s->status);
    free(s);
}

/* ---- the loop ---- */

static void accept_connections(fgf_server *s) {
    for (int i = 0; i < ACCEPT_BURST; i++) {
        struct sockaddr_storage from;
        socklen_t size = sizeof from;
        char address[INET6_ADDRSTRLEN] = "?";
        int fd = accept4(s->listener, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        if (from.ss_family == AF_INET6)
            inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&from)->sin6_addr, address, sizeof address);
        else
            inet_ntop(AF_INET, &((struct sockaddr_in *)&from)->sin_addr, address, sizeof address);
        fgf_connection_accept(s, fd, address);
    }
}

static void remove_closed(fgf_server *s) {
    for (fgf_connection **at = &s->connections; *at;) {
        fgf_connection *c = *at;
        if (c->closed) {
            *at = c->next;
            fgf_connection_free(c);
        } else {
            at = &c->next;
        }
    }
}

static void handle_event(fgf_server *s, void *of) {
    fgf_connection *c = of;
    if (of == &s->listener)
        accept_connections(s);
    else if (of == &s->pool_event)
        fgf_pool_collect(s->pool, s);
    else if (of == &s->closer_event)
        fgf_pool_collect(s->closer, s);
    else if (of != &s->stop_event && !c->closed)
        fgf_connection_serve(c);
}

static bool serve_again(fgf_server *s) {
    bool more = false;
    for (fgf_connection *c = s->connections; c; c = c->next)
        if (c->again && !c->closed) {
            fgf_connection_serve(c);
            more |= c->again;
        }
    return more;
}

static void sweep(fgf_server *s, double now) {
    reread_allowed(s);
    for (fgf_connection *c = s->connections; c; c = c->next)
        if (!c->closed)
            fgf_connection_sweep(c, now);
    if (s->options.is_stopped && s->options.is_stopped(s->options.ctx))
        atomic_store(&s->stop, true);
    fgf_status_refresh(s, now, false);
}

static bool is_over(const fgf_server *s, double now) {
    if (s->finished_at == 0 || s->closing)
        return false;
    return s->connection_count == 0 ? now - s->finished_at >= fmin(1, s->options.linger)
                                    : now - s->finished_at >= s->options.linger;
}

/* A round whose state may be on disk is noted as well, so that a server that is stopped has all of its history. */
static void complete_closing(fgf_server *s) {
    struct pollfd closed = {.fd = s->closer_event, .events = POLLIN};
    while (s->closing && s->retry_at == 0 && (poll(&closed, 1, -1) >= 0 || errno == EINTR))
        fgf_pool_collect(s->closer, s);
}

int fgf_server_run(fgf_server *s, fgio_reason *why) {
    struct epoll_event events[EVENTS];
    double swept = 0;
    bool more = false;
    s->opened = frugi_clock();
    while (!atomic_load(&s->stop) && !is_over(s, frugi_clock())) {
        int count = epoll_wait(s->epoll, events, EVENTS, more ? 0 : TICK_MS);
        if (count < 0 && errno != EINTR)
            return fgio_fail(why, "epoll: %s", strerror(errno));
        for (int i = 0; i < count; i++)
            handle_event(s, events[i].data.ptr);
        more = serve_again(s);
        double now = frugi_clock();
        fgf_round_close_if_due(s, now);
        if (now - swept >= TICK_MS / 1000.0) {
            sweep(s, now);
            swept = now;
        }
        remove_closed(s);
    }
    complete_closing(s);
    fgf_status_refresh(s, frugi_clock(), true);
    return 0;
}

void fgf_server_stop(fgf_server *s) {
    atomic_store(&s->stop, true);
    eventfd_write(s->stop_event, 1);
}

uint16_t fgf_server_port(const fgf_server *s) {
    return s->port;
}

bool fgf_server_is_done(const fgf_server *s) {
    return s->finished_at > 0;
}

const float *fgf_server_weights(const fgf_server *s, uint64_t *round) {
    *round = s->state->round;
    return s->state->weights;
}
