/* tcp_socket.c - addresses, connecting with a deadline, listening. */
#include "federated/tls_channel.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 256

/* HOST:PORT, [IPV6]:PORT, or PORT alone where a server listens. */
static int resolve(const char *address, bool listening, struct addrinfo **found, fgio_reason *why) {
    char host[256] = "";
    const char *colon = strrchr(address, ':'), *port = colon ? colon + 1 : address;
    size_t length = colon ? (size_t)(colon - address) : 0;
    if (length >= sizeof host || *port == '\0' || strspn(port, "0123456789") != strlen(port) || strlen(port) > 5 ||
        (!listening && length == 0))
        return fgio_fail(why, "'%s': expected HOST:PORT, for example 192.0.2.1:7700", address);
    memcpy(host, address, length);
    if (length > 1 && host[0] == '[' && host[length - 1] == ']') {
        memmove(host, host + 1, length - 2);
        host[length - 2] = '\0';
    }
    struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = listening ? AI_PASSIVE : AI_ADDRCONFIG};
    int error = getaddrinfo(host[0] ? host : NULL, port, &want, found);
    return error ? fgio_fail(why, "%s: %s", address, gai_strerror(error)) : 0;
}

/* A peer that is gone without a word is noticed after two minutes, whether something was on its way to it or not. */
void fgf_tcp_tune(int fd) {
    int on = 1, idle = 60, interval = 20, probes = 3, unanswered_ms = 120000;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

static int connect_one(const struct addrinfo *to, double deadline) {
    int fd = socket(to->ai_family, to->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, to->ai_protocol), error = 0;
    socklen_t size = sizeof error;
    if (fd < 0)
        return -1;
    if (connect(fd, to->ai_addr, to->ai_addrlen) != 0 && errno != EINPROGRESS)
        goto failed;
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    double left = deadline - frugi_clock();
    if (poll(&wait, 1, left > 0 ? (int)(1000 * left) : 0) != 1) {
        errno = ETIMEDOUT;
        goto failed;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) {
        fgf_tcp_tune(fd);
        return fd;
    }
    errno = error;
failed:
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

int fgf_tcp_connect(const char *address, double seconds, fgio_reason *why) {
    struct addrinfo *found = NULL;
    double deadline = frugi_clock() + seconds;
    int fd = -1;
    if (resolve(address, false, &found, why) != 0)
        return -1;
    for (struct addrinfo *to = found; to && fd < 0; to = to->ai_next)
        fd = connect_one(to, deadline);
    freeaddrinfo(found);
    return fd >= 0 ? fd : fgio_fail(why, "%s: %s", address, strerror(errno));
}

static int listen_one(const struct addrinfo *at) {
    int on = 1, fd = socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int fgf_tcp_listen(const char *address, uint16_t *port, fgio_reason *why) {
    struct addrinfo *found = NULL;
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    int fd = -1;
    if (resolve(address, true, &found, why) != 0)
        return -1;
    for (struct addrinfo *one = found; one && fd < 0; one = one->ai_next)
        fd = listen_one(one);
    freeaddrinfo(found);
    if (fd < 0)
        return fgio_fail(why, "cannot listen at %s: %s", address, strerror(errno));
    if (getsockname(fd, (struct sockaddr *)&at, &size) == 0)
        *port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                               : ((struct sockaddr_in *)&at)->sin_port);
    return fd;
}
