/*
 * status_http.c - a small HTTP server: one thread with poll, a few connections at a time, each with a deadline for its
 * request and its answer together.
 */
#define _GNU_SOURCE /* accept4 */
#include "program/federated/status_http.h"

#include "base/clock.h"
#include "program/federated/status_page.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS 16
#define HEAD_MAX    4096
#define SECONDS     5.0 /* for a request and its answer */

/** One connection: its request arrives, then its answer is sent. */
typedef struct exchange {
    int fd; /* -1: free */
    double deadline;
    char head[HEAD_MAX + 1];
    size_t head_len;
    char *answer;
    size_t answer_len, sent;
} exchange;

struct fgp_status_http {
    int listener, stop;
    uint16_t port;
    fgp_status_fn *status;
    void *ctx;
    pthread_t thread;
    bool started;
    exchange exchange[CONNECTIONS];
};

/* ---- answers ---- */

/* The value of a header, with its length; NULL if there is none. */
static const char *find_header(const char *head, const char *name, size_t *len) {
    size_t name_len = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, name_len) == 0 && line[name_len] == ':') {
            line += name_len + 1;
            line += strspn(line, " \t");
            *len = strcspn(line, "\r");
            return line;
        }
    }
    return NULL;
}

static bool names_this_machine(const char *head) {
    static const char *const names[] = {"127.0.0.1", "localhost", "[::1]"};
    size_t len = 0;
    const char *host = find_header(head, "Host", &len);
    for (size_t i = 0; host && i < sizeof names / sizeof *names; i++) {
        size_t name = strlen(names[i]);
        if (len >= name && strncasecmp(host, names[i], name) == 0 && (len == name || host[name] == ':'))
            return true;
    }
    return false;
}

static fgp_http_answer fail_with(int code, const char *text) {
    return (fgp_http_answer){code, "text/plain; charset=utf-8", strdup(text)};
}

static char *copy_text(const char *json) {
    return strdup(json);
}

fgp_http_answer fgp_http_respond(const char *head, fgp_status_fn *status, void *ctx) {
    static const struct {
        const char *path, *type;
        char *(*make)(const char *json);
    } pages[] = {{"/", "text/html; charset=utf-8", fgp_status_page},
                 {"/metrics", "text/plain; version=0.0.4; charset=utf-8", fgp_status_metrics},
                 {"/status.json", "application/json", copy_text}};
    size_t method = strcspn(head, " \r\n"), path = strcspn(head + method + (head[method] == ' '), " \r\n");
    const char *target = head + method + 1, *version = target + path;
    if (head[method] != ' ' || strncmp(version, " HTTP/1.", 8) != 0)
        return fail_with(400, "this is no request of HTTP/1.1\n");
    if (method != 3 || strncmp(head, "GET", 3) != 0)
        return fail_with(405, "GET is the only method here\n");
    if (!names_this_machine(head))
        return fail_with(403, "ask for 127.0.0.1 or localhost\n");
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (path == strlen(pages[i].path) && strncmp(target, pages[i].path, path) == 0) {
            char *json = status(ctx), *body = json ? pages[i].make(json) : NULL;
            free(json);
            return body ? (fgp_http_answer){200, pages[i].type, body} : fail_with(503, "there is no status yet\n");
        }
    return fail_with(404, "there are /, /metrics and /status.json\n");
}

static const char *reason_of(int code) {
    switch (code) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 431: return "Request Header Fields Too Large";
    default: return "Service Unavailable";
    }
}

static void queue_answer(exchange *e, fgp_http_answer a) {
    char head[512];
    size_t body = a.body ? strlen(a.body) : 0;
    int len = snprintf(head, sizeof head,
                       "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n"
                       "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n%s\r\n",
                       a.code, reason_of(a.code), a.type, body, a.code == 405 ? "Allow: GET\r\n" : "");
    e->answer = a.body ? malloc((size_t)len + body) : NULL;
    if (e->answer) {
        memcpy(e->answer, head, (size_t)len);
        memcpy(e->answer + len, a.body, body);
        e->answer_len = (size_t)len + body;
    }
    free(a.body);
}

/* ---- connections ---- */

static void end_exchange(exchange *e) {
    shutdown(e->fd, SHUT_WR);
    while (recv(e->fd, e->head, HEAD_MAX, MSG_DONTWAIT) > 0) /* unread bytes would reset the answer */
        ;
    close(e->fd);
    free(e->answer);
    *e = (exchange){.fd = -1};
}

static void accept_exchanges(fgp_status_http *h) {
    int fd;
    while ((fd = accept4(h->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        exchange *e = h->exchange, *end = h->exchange + CONNECTIONS;
        while (e < end && e->fd >= 0)
            e++;
        if (e == end) {
            close(fd);
            continue;
        }
        e->fd = fd;
        e->deadline = frugi_clock() + SECONDS;
    }
}

static void read_request(fgp_status_http *h, exchange *e) {
    ssize_t got = recv(e->fd, e->head + e->head_len, HEAD_MAX - e->head_len, 0);
    if (got <= 0) {
        if (got == 0 || (errno != EAGAIN && errno != EINTR))
            end_exchange(e);
        return;
    }
    e->head_len += (size_t)got;
    e->head[e->head_len] = '\0';
    if (strlen(e->head) < e->head_len)
        queue_answer(e, fail_with(400, "a request has no zero bytes\n"));
    else if (strstr(e->head, "\r\n\r\n"))
        queue_answer(e, fgp_http_respond(e->head, h->status, h->ctx));
    else if (e->head_len == HEAD_MAX)
        queue_answer(e, fail_with(431, "the request is too long\n"));
    else
        return;
    if (!e->answer)
        end_exchange(e);
}

static void write_answer(exchange *e) {
    ssize_t put = send(e->fd, e->answer + e->sent, e->answer_len - e->sent, MSG_NOSIGNAL);
    if (put > 0)
        e->sent += (size_t)put;
    if (e->sent == e->answer_len || (put < 0 && errno != EAGAIN && errno != EINTR))
        end_exchange(e);
}

static void *serve(void *arg) {
    fgp_status_http *h = arg;
    struct pollfd wait[CONNECTIONS + 2];
    for (;;) {
        wait[0] = (struct pollfd){.fd = h->stop, .events = POLLIN};
        wait[1] = (struct pollfd){.fd = h->listener, .events = POLLIN};
        for (int i = 0; i < CONNECTIONS; i++)
            wait[i + 2] = (struct pollfd){.fd = h->exchange[i].fd, .events = h->exchange[i].answer ? POLLOUT : POLLIN};
        poll(wait, CONNECTIONS + 2, 1000);
        if (wait[0].revents)
            return NULL;
        double now = frugi_clock();
        for (int i = 0; i < CONNECTIONS; i++) {
            exchange *e = &h->exchange[i];
            if (e->fd >= 0 && now > e->deadline)
                end_exchange(e);
            else if (e->fd >= 0 && wait[i + 2].revents && e->answer)
                write_answer(e);
            else if (e->fd >= 0 && wait[i + 2].revents)
                read_request(h, e);
        }
        if (wait[1].revents)
            accept_exchanges(h);
    }
}

/* ---- creation ---- */

static int listen_at(fgp_status_http *h, uint16_t port, fgio_reason *why) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    int on = 1;
    h->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (h->listener < 0 || setsockopt(h->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(h->listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(h->listener, CONNECTIONS) != 0 ||
        getsockname(h->listener, (struct sockaddr *)&at, &size) != 0)
        return fgio_fail(why, "cannot listen at 127.0.0.1:%u for the status: %s", port, strerror(errno));
    h->port = ntohs(at.sin_port);
    return 0;
}

int fgp_status_http_open(uint16_t port, fgp_status_fn *status, void *ctx, fgp_status_http **out, fgio_reason *why) {
    fgp_status_http *h = calloc(1, sizeof *h);
    if (!h)
        return fgio_fail(why, "not enough memory");
    h->listener = -1;
    h->stop = eventfd(0, EFD_CLOEXEC);
    h->status = status;
    h->ctx = ctx;
    for (int i = 0; i < CONNECTIONS; i++)
        h->exchange[i].fd = -1;
    int result = h->stop >= 0 ? listen_at(h, port, why) : fgio_fail(why, "eventfd: %s", strerror(errno));
    if (result == 0) {
        h->started = pthread_create(&h->thread, NULL, serve, h) == 0;
        result = h->started ? 0 : fgio_fail(why, "a thread for the status cannot be started");
    }
    if (result == 0)
        *out = h;
    else
        fgp_status_http_close(h);
    return result;
}

void fgp_status_http_close(fgp_status_http *h) {
    if (!h)
        return;
    if (h->started) {
        eventfd_write(h->stop, 1);
        pthread_join(h->thread, NULL);
    }
    for (int i = 0; i < CONNECTIONS; i++)
        if (h->exchange[i].fd >= 0)
            end_exchange(&h->exchange[i]);
    if (h->listener >= 0)
        close(h->listener);
    if (h->stop >= 0)
        close(h->stop);
    free(h);
}

uint16_t fgp_status_http_port(const fgp_status_http *h) {
    return h->port;
}
