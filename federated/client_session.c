/*
 * client_session.c - a client's connection: requests with deadlines, reconnecting with growing pauses.
 *
 * Every attempt at a request ends in one of three ways: answered, broken (connect again and repeat it), or fatal (the
 * server or the handshake says that repeating has no use).
 */
#include "federated/client_session.h"

#include "base/clock.h"
#include "base/crc32c.h"
#include "federated/message_stream.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CONNECT_SECONDS  10.0
#define ANSWER_SECONDS   60.0 /* without any byte from the server, or to it */
#define PATIENCE_SECONDS 600.0
#define PAUSE_MIN        0.2
#define PAUSE_MAX        10.0
#define SLICE_MS         100

typedef enum outcome { ANSWERED, BROKEN, FATAL } outcome;

struct fgf_session {
    fgf_client_options options;
    fgf_tls *tls;
    fgf_stream stream;
    bool connected, joined;
    fgf_run_id run;
    char *job;
    uint64_t rounds, layout_hash, elements, examples;
    uint64_t sent, received;
    fgf_refusal refusal; /* of the last request */
    /* a download that broke off */
    unsigned char *bytes;
    size_t len, at;
    uint32_t checksum;
    uint64_t have;
};

static bool is_stopped(const fgf_session *s) {
    return s->options.is_stopped && s->options.is_stopped(s->options.ctx);
}

static void report(const fgf_session *s, const char *text) {
    if (s->options.log)
        s->options.log(s->options.ctx, text);
}

static void disconnect(fgf_session *s) {
    if (!s->connected)
        return;
    s->sent += s->stream.bytes_out;
    s->received += s->stream.bytes_in;
    fgf_stream_close(&s->stream);
    s->connected = false;
}

static bool admit_server(void *ctx, const fgf_public_key *key) {
    return fgf_public_equal(key, &((fgf_session *)ctx)->options.server_key);
}

/* ---- one attempt ---- */

/* Waits until the socket is ready; ANSWERED means so. */
static outcome wait_ready(fgf_session *s, bool writing, double deadline, fgio_reason *why) {
    struct pollfd wait = {.fd = fgf_channel_fd(s->stream.channel), .events = writing ? POLLOUT : POLLIN};
    for (;;) {
        if (is_stopped(s)) {
            fgio_fail(why, "stopped");
            return FATAL;
        }
        if (poll(&wait, 1, SLICE_MS) > 0)
            return ANSWERED;
        if (frugi_clock() > deadline) {
            fgio_fail(why, "the server does not answer");
            return BROKEN;
        }
    }
}

static outcome failed(const fgf_session *s) {
    return fgf_channel_was_refused(s->stream.channel) ? FATAL : BROKEN;
}

static outcome flush(fgf_session *s, fgio_reason *why) {
    for (;;) {
        size_t before = s->stream.out_at;
        int result = fgf_stream_flush(&s->stream, why);
        if (result == 1)
            return ANSWERED;
        if (result == FGF_FAILED)
            return failed(s);
        double deadline = frugi_clock() + (before < s->stream.out_at ? ANSWER_SECONDS : ANSWER_SECONDS / 2);
        outcome ready = wait_ready(s, fgf_channel_wants_write(s->stream.channel), deadline, why);
        if (ready != ANSWERED)
            return ready;
    }
}

static outcome receive(fgf_session *s, fgf_message *m, fgio_reason *why) {
    for (;;) {
        int result = fgf_stream_receive(&s->stream, m, why);
        if (result == 1)
            return ANSWERED;
        if (result == FGF_FAILED)
            return fgf_stream_is_damaged(&s->stream) ? FATAL : failed(s);
        outcome ready = wait_ready(s, fgf_channel_wants_write(s->stream.channel), frugi_clock() + ANSWER_SECONDS, why);
        if (ready != ANSWERED)
            return ready;
    }
}

/* The reason of a refusal, in the server's words; some may pass. */
static outcome refused(fgf_session *s, const fgf_message *m, fgio_reason *why) {
    char line[sizeof why->text], safe[sizeof why->text];
    snprintf(line, sizeof line, "%.*s", (int)m->text.len, (const char *)m->text.data);
    fgio_fail(why, "the server refuses: %s", fgio_printable(line, safe, sizeof safe));
    s->refusal = m->code < FGF_REFUSALS ? (fgf_refusal)m->code : FGF_REFUSE_PROTOCOL;
    return m->code == FGF_REFUSE_RETRY || m->code == FGF_REFUSE_RATE ? BROKEN : FATAL;
}

/* Sends a message and receives the answer, which must be of a type. */
static outcome ask(fgf_session *s, const fgf_message *question, fgf_message_type type, fgf_message *m,
                   fgio_reason *why) {
    s->refusal = 0;
    if (question && fgf_stream_send(&s->stream, question, why) != 0)
        return BROKEN;
    outcome result = flush(s, why);
    do {
        if (result == ANSWERED)
            result = receive(s, m, why);
    } while (result == ANSWERED && m->type == FGF_WAIT && type == FGF_WEIGHTS);
    if (result != ANSWERED)
        return result;
    if (m->type == FGF_REFUSE)
        return refused(s, m, why);
    if (m->type == type || (type == FGF_WEIGHTS && m->type == FGF_DONE) || (type == FGF_SEND && m->type == FGF_CONFIRM))
        return ANSWERED;
    fgio_fail(why, "the server answers with %s instead of %s", fgf_message_name(m->type), fgf_message_name(type));
    return FATAL;
}

static outcome shake_hands(fgf_session *s, fgio_reason *why) {
    double deadline = frugi_clock() + CONNECT_SECONDS;
    for (;;) {
        int result = fgf_channel_handshake(s->stream.channel, why);
        if (result == 1)
            return ANSWERED;
        if (result == FGF_FAILED)
            return failed(s);
        outcome ready = wait_ready(s, fgf_channel_wants_write(s->stream.channel), deadline, why);
        if (ready != ANSWERED)
            return ready;
    }
}

/* The first answer tells the run and the job; later ones must be of the same run. */
static outcome greet(fgf_session *s, fgio_reason *why) {
    const char *version = frug_version();
    fgf_message m,
        hello = {.type = FGF_HELLO, .code = FGF_PROTOCOL, .text = {(const unsigned char *)version, strlen(version)}};
    outcome result = ask(s, &hello, FGF_WELCOME, &m, why);
    if (result != ANSWERED)
        return result;
    if (s->job && memcmp(&s->run, &m.run, sizeof m.run) != 0) {
        fgio_fail(why, "the server has begun another run: join again");
        return FATAL;
    }
    char *job = strndup((const char *)m.text.data, m.text.len);
    if (!job) {
        fgio_fail(why, "not enough memory");
        return FATAL;
    }
    free(s->job);
    s->job = job;
    s->run = m.run;
    s->rounds = m.rounds;
    return ANSWERED;
}

static outcome join(fgf_session *s, fgio_reason *why) {
    fgf_message m, question = {.type = FGF_JOIN,
                               .run = s->run,
                               .layout_hash = s->layout_hash,
                               .elements = s->elements,
                               .examples = s->examples};
    return s->joined ? ask(s, &question, FGF_JOINED, &m, why) : ANSWERED;
}

static outcome ensure_connected(fgf_session *s, fgio_reason *why) {
    if (s->connected)
        return ANSWERED;
    int fd = fgf_tcp_connect(s->options.server, CONNECT_SECONDS, why);
    if (fd < 0)
        return BROKEN;
    fgf_channel *channel = fgf_channel_create(s->tls, fd);
    if (!channel) {
        fgio_fail(why, "not enough memory");
        return BROKEN;
    }
    fgf_stream_open(&s->stream, channel);
    s->connected = true;
    outcome result = shake_hands(s, why);
    if (result == ANSWERED)
        result = greet(s, why);
    return result == ANSWERED ? join(s, why) : result;
}

/* ---- attempts until one is answered ---- */

/** One attempt at a request over an open connection. */
typedef outcome attempt(fgf_session *s, void *request, fgio_reason *why);

static void pause_for(const fgf_session *s, double seconds) {
    double end = frugi_clock() + seconds;
    const struct timespec slice = {.tv_nsec = SLICE_MS * 1000000L};
    while (!is_stopped(s) && frugi_clock() < end)
        nanosleep(&slice, NULL);
}

static void report_retry(const fgf_session *s, const fgio_reason *why, double left) {
    fgio_reason line;
    fgio_fail(&line, "%.180s; trying again for up to %.0f seconds", why->text, left);
    report(s, line.text);
}

static int repeat(fgf_session *s, attempt *try_once, void *request, fgio_reason *why) {
    double patience = s->options.patience > 0 ? s->options.patience : PATIENCE_SECONDS;
    double deadline = frugi_clock() + patience, pause = PAUSE_MIN;
    for (;;) {
        double began = frugi_clock();
        bool was_connected = s->connected;
        outcome result = ensure_connected(s, why);
        if (result == ANSWERED) {
            deadline = frugi_clock() + patience;
            result = try_once(s, request, why);
        }
        if (result == ANSWERED)
            return 0;
        if (s->refusal != FGF_REFUSE_RETRY && (result == BROKEN || s->refusal == 0))
            disconnect(s);
        if (result == FATAL)
            return -1;
        if (is_stopped(s))
            return fgio_fail(why, "stopped");
        if (frugi_clock() > deadline) {
            fgio_reason last = *why;
            return fgio_fail(why, "%.180s; gave up after %.0f seconds", last.text, patience);
        }
        if (was_connected || pause == PAUSE_MIN)
            report_retry(s, why, deadline - frugi_clock());
        pause = frugi_clock() - began > PAUSE_MAX ? PAUSE_MIN : fmin(2 * pause, PAUSE_MAX);
        pause_for(s, pause);
    }
}

static outcome try_nothing(fgf_session *s, void *request, fgio_reason *why) {
    (void)s;
    (void)request;
    (void)why;
    return ANSWERED;
}

int fgf_session_open(const fgf_client_options *options, fgf_session **out, fgio_reason *why) {
    fgf_session *s = calloc(1, sizeof *s);
    if (!s)
        return fgio_fail(why, "not enough memory");
    s->options = *options;
    int status = fgf_tls_create(options->key, false, admit_server, s, &s->tls, why);
    if (status == 0)
        status = repeat(s, try_nothing, NULL, why);
    if (status == 0)
        *out = s;
    else
        fgf_session_close(s);
    return status;
}

void fgf_session_close(fgf_session *s) {
    if (!s)
        return;
    disconnect(s);
    fgf_tls_destroy(s->tls);
    free(s->job);
    free(s->bytes);
    free(s);
}

const char *fgf_session_job(const fgf_session *s) {
    return s->job;
}

uint64_t fgf_session_rounds(const fgf_session *s) {
    return s->rounds;
}

const fgf_run_id *fgf_session_run(const fgf_session *s) {
    return &s->run;
}

void fgf_session_traffic(const fgf_session *s, uint64_t *sent, uint64_t *received) {
    *sent = s->sent + (s->connected ? s->stream.bytes_out : 0);
    *received = s->received + (s->connected ? s->stream.bytes_in : 0);
}

static outcome try_join(fgf_session *s, void *request, fgio_reason *why) {
    bool *asked = request;
    if (*asked)
        return ANSWERED; /* by ensure_connected() */
    *asked = s->joined = true;
    return join(s, why);
}

int fgf_session_join(fgf_session *s, uint64_t layout_hash, uint64_t elements, uint64_t examples, fgio_reason *why) {
    bool asked = false;
    s->layout_hash = layout_hash;
    s->elements = elements;
    s->examples = examples;
    return repeat(s, try_join, &asked, why);
}

/* ---- downloads ---- */

/** A request for weights. */
typedef struct download {
    uint64_t version, most;
    bool done;
} download;

/* The server continues the same bytes, or begins others. */
static outcome begin_download(fgf_session *s, download *d, const fgf_message *m, fgio_reason *why) {
    if (m->bytes > d->most || m->bytes == 0 || m->offset > m->bytes) {
        fgio_fail(why, "the server announces %llu bytes of weights", (unsigned long long)m->bytes);
        return FATAL;
    }
    bool same =
        s->bytes && s->len == m->bytes && s->checksum == m->checksum && s->have == m->have && m->offset <= s->at;
    if (!same && m->offset != 0) {
        fgio_fail(why, "the server continues weights that were not begun");
        return FATAL;
    }
    if (!same) {
        free(s->bytes);
        s->bytes = malloc(m->bytes);
        s->len = m->bytes;
        s->checksum = m->checksum;
        s->have = m->have;
    }
    s->at = m->offset;
    d->version = m->round;
    if (s->bytes)
        return ANSWERED;
    fgio_fail(why, "not enough memory");
    return FATAL;
}

static outcome try_download(fgf_session *s, void *request, fgio_reason *why) {
    download *d = request;
    fgf_message m, question = {.type = FGF_PULL,
                               .run = s->run,
                               .have = d->version,
                               .offset = s->bytes ? s->at : 0,
                               .checksum = s->bytes ? s->checksum : 0};
    outcome result = ask(s, &question, FGF_WEIGHTS, &m, why);
    if (result != ANSWERED)
        return result;
    d->done = m.type == FGF_DONE;
    uint64_t have = d->version;
    result = d->done ? ANSWERED : begin_download(s, d, &m, why);
    while (result == ANSWERED && !d->done && s->at < s->len) {
        result = ask(s, NULL, FGF_CHUNK_DATA, &m, why);
        if (result == ANSWERED && (m.offset != s->at || m.text.len == 0 || m.text.len > s->len - s->at)) {
            fgio_fail(why, "a chunk of the weights is out of place");
            result = FATAL;
        }
        if (result == ANSWERED) {
            memcpy(s->bytes + s->at, m.text.data, m.text.len);
            s->at += m.text.len;
        }
    }
    if (result == BROKEN)
        d->version = have;
    return result;
}

int fgf_session_download(fgf_session *s, uint64_t *version, uint64_t most, unsigned char **bytes, size_t *len,
                         fgio_reason *why) {
    download d = {.version = *version, .most = most};
    if (repeat(s, try_download, &d, why) != 0)
        return -1;
    if (d.done)
        return 0;
    unsigned char *got = s->bytes;
    s->bytes = NULL;
    if (frugi_crc32c(0, got, s->len) != s->checksum) {
        free(got);
        return fgio_fail(why, "the weights are damaged");
    }
    *version = d.version;
    *bytes = got;
    *len = s->len;
    return 1;
}

/* ---- uploads ---- */

typedef struct upload {
    const fgf_update *update;
    const unsigned char *frame;
} upload;

static outcome send_chunks(fgf_session *s, const upload *u, uint64_t at, fgio_reason *why) {
    outcome result = ANSWERED;
    while (result == ANSWERED && at < u->update->bytes) {
        size_t left = u->update->bytes - at, len = left < FGF_CHUNK ? left : FGF_CHUNK;
        fgf_message chunk = {.type = FGF_CHUNK_DATA, .offset = at, .text = {u->frame + at, len}};
        if (fgf_stream_send(&s->stream, &chunk, why) != 0)
            return BROKEN;
        result = flush(s, why);
        at += len;
    }
    return result;
}

static outcome try_upload(fgf_session *s, void *request, fgio_reason *why) {
    const upload *u = request;
    const fgf_update *update = u->update;
    fgf_message m, question = {.type = FGF_OFFER,
                               .run = s->run,
                               .round = update->base,
                               .upload = update->upload,
                               .examples = update->examples,
                               .bytes = update->bytes,
                               .checksum = update->checksum,
                               .loss = update->loss};
    outcome result = ask(s, &question, FGF_SEND, &m, why);
    if (result == ANSWERED && m.type == FGF_SEND && (m.upload != update->upload || m.offset > update->bytes)) {
        fgio_fail(why, "the server asks for another update");
        return FATAL;
    }
    if (result == ANSWERED && m.type == FGF_SEND) {
        result = send_chunks(s, u, m.offset, why);
        if (result == ANSWERED)
            result = ask(s, NULL, FGF_CONFIRM, &m, why);
    }
    if (result == ANSWERED && m.upload != update->upload) {
        fgio_fail(why, "the server confirms another update");
        return FATAL;
    }
    return result;
}

/* An update that is not counted is no reason to leave the run. */
static bool is_of_update(fgf_refusal refusal) {
    return refusal == FGF_REFUSE_STALE || refusal == FGF_REFUSE_DOUBLE || refusal == FGF_REFUSE_INVALID;
}

int fgf_session_upload(fgf_session *s, const fgf_update *update, const void *frame, fgio_reason *why) {
    upload u = {update, frame};
    if (repeat(s, try_upload, &u, why) == 0)
        return 1;
    if (!is_of_update(s->refusal))
        return -1;
    report(s, why->text);
    return 0;
}
