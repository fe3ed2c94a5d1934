/*
 * server_connection.c - the protocol of one client, from the handshake to its end, with its deadlines and limits.
 *
 * A client asks and the server answers, so a connection has one stage at a time; a message that does not belong to the
 * stage ends it. Nothing is allocated for a peer before the handshake has shown its key, and afterwards only what
 * message_stream.h bounds.
 */
#include "federated/server_internal.h"

#include "base/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define MESSAGES_AT_ONCE 16
#define CHUNKS_AT_ONCE   16

/* ---- beginning and end ---- */

static void set_stage(fgf_connection *c, fgf_stage stage) {
    c->stage = stage;
    c->began = c->waited = frugi_clock();
}

static void watch_events(fgf_connection *c) {
    bool reads = c->stage != FGF_STAGE_CHECKING && c->stage != FGF_STAGE_LEAVING;
    bool writes = c->stage == FGF_STAGE_HANDSHAKE ? fgf_channel_wants_write(c->stream.channel)
                                                  : c->stream.out_len > c->stream.out_at;
    uint32_t events = (reads ? EPOLLIN : 0u) | (writes ? EPOLLOUT : 0u);
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (events != c->events)
        epoll_ctl(c->server->epoll, EPOLL_CTL_MOD, fgf_channel_fd(c->stream.channel), &event);
    c->events = events;
}

/* Nobody can fill the log: beyond some lines refusals are only counted. */
static void log_refusal(fgf_server *s, const char *name, const char *why) {
    double now = frugi_clock();
    if (now - s->refusals_since > FGF_REFUSAL_SECONDS) {
        if (s->refusals > FGF_REFUSAL_LINES)
            fgf_server_log(s, "%llu more were refused", (unsigned long long)(s->refusals - FGF_REFUSAL_LINES));
        s->refusals_since = now;
        s->refusals = 0;
    }
    if (s->refusals++ < FGF_REFUSAL_LINES)
        fgf_server_log(s, "%s: refused: %s", name, why);
}

static void refuse_handshake(fgf_connection *c, const char *why) {
    c->server->refused_connections++;
    c->closed = true;
    log_refusal(c->server, c->name, why);
}

/* When handshakes are many, the oldest one makes room: an attacker cannot lock clients out by holding them open. */
static void limit_handshakes(fgf_server *s) {
    fgf_connection *oldest = NULL;
    if (s->handshakes < FGF_HANDSHAKES_MAX)
        return;
    for (fgf_connection *c = s->connections; c; c = c->next)
        if (c->stage == FGF_STAGE_HANDSHAKE && !c->closed && (!oldest || c->began < oldest->began))
            oldest = c;
    if (oldest)
        refuse_handshake(oldest, "too many handshakes at once");
}

void fgf_connection_accept(fgf_server *s, int fd, const char *address) {
    fgf_connection *c = s->connection_count < s->options.connections_max ? calloc(1, sizeof *c) : NULL;
    limit_handshakes(s);
    if (!c) {
        s->refused_connections++;
        log_refusal(s, address, "too many connections, or not enough memory");
        close(fd);
        return;
    }
    fgf_tcp_tune(fd);
    fgf_channel *channel = fgf_channel_create(s->tls, fd);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (!channel || epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        fgf_channel_destroy(channel);
        free(c);
        return;
    }
    double now = frugi_clock();
    *c = (fgf_connection){.server = s,
                          .events = EPOLLIN,
                          .began = now,
                          .progress = now,
                          .budget = FGF_REQUESTS_BURST,
                          .budget_at = now,
                          .update_fd = -1,
                          .next = s->connections};
    snprintf(c->name, sizeof c->name, "%s", address);
    fgf_stream_open(&c->stream, channel);
    s->connections = c;
    s->connection_count++;
    s->handshakes++;
}

static void count_traffic(fgf_connection *c) {
    fgf_client_record *record = c->stage == FGF_STAGE_HANDSHAKE ? NULL : fgf_book_find(&c->server->book, &c->key);
    c->server->bytes_up += c->stream.bytes_in;
    c->server->bytes_down += c->stream.bytes_out;
    if (record) {
        record->bytes_up += c->stream.bytes_in;
        record->bytes_down += c->stream.bytes_out;
    }
    c->stream.bytes_in = c->stream.bytes_out = 0;
}

void fgf_connection_free(fgf_connection *c) {
    fgf_server *s = c->server;
    count_traffic(c);
    s->connection_count--;
    s->handshakes -= c->stage == FGF_STAGE_HANDSHAKE;
    fgf_blob_release(s, c->blob);
    if (c->update_fd >= 0)
        close(c->update_fd);
    fgf_stream_close(&c->stream);
    free(c);
}

static void end_connection(fgf_connection *c, const char *why) {
    c->server->dropped++;
    fgf_server_log(c->server, "%s: %s", c->name, why);
    c->closed = true;
}

/* ---- answers ---- */

static void answer(fgf_connection *c, const fgf_message *message) {
    fgio_reason why;
    if (fgf_stream_send(&c->stream, message, &why) != 0)
        end_connection(c, why.text);
}

static void refuse(fgf_connection *c, fgf_refusal code, const char *format, ...) FGIO_PRINTF(3, 4);

/* Refuses a request in one line, on both sides. */
static void refuse(fgf_connection *c, fgf_refusal code, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    size_t len = (size_t)length < sizeof line ? (size_t)length : sizeof line - 1;
    fgf_client_record *record = fgf_book_find(&c->server->book, &c->key);
    if (record)
        record->refused[code]++;
    log_refusal(c->server, c->name, line);
    answer(c, &(fgf_message){.type = FGF_REFUSE, .code = code, .text = {(const unsigned char *)line, len}});
    bool stays =
        code == FGF_REFUSE_STALE || code == FGF_REFUSE_DOUBLE || code == FGF_REFUSE_INVALID || code == FGF_REFUSE_RETRY;
    set_stage(c, stays ? FGF_STAGE_READY : FGF_STAGE_LEAVING);
}

static bool is_other_run(fgf_connection *c, const fgf_message *m) {
    if (memcmp(&m->run, &c->server->run, sizeof m->run) == 0)
        return false;
    refuse(c, FGF_REFUSE_RUN, "this is of another run than the one that is served here: join again");
    return true;
}

/* A client has one connection: an older one is taken to be broken. */
static void replace_older(fgf_connection *c) {
    for (fgf_connection *o = c->server->connections; o; o = o->next)
        if (o != c && !o->closed && o->stage != FGF_STAGE_HANDSHAKE && fgf_public_equal(&o->key, &c->key))
            o->closed = true;
}

static void shake_hands(fgf_connection *c) {
    fgf_server *s = c->server;
    fgio_reason why;
    int result = fgf_channel_handshake(c->stream.channel, &why);
    if (result == FGF_FAILED) {
        refuse_handshake(c, why.text);
        return;
    }
    if (result == FGF_AGAIN)
        return;
    c->key = fgf_channel_peer(c->stream.channel);
    const fgf_allowed *client = fgf_allow_list_find(&s->allowed, &c->key);
    fgf_client_record *record = client ? fgf_book_add(&s->book, &c->key) : NULL;
    if (!record) {
        end_connection(c, "no longer in the list of clients");
        return;
    }
    char text[FGF_PUBLIC_TEXT];
    snprintf(c->name, sizeof c->name, "%s", client->name[0] ? client->name : fgf_public_text(&c->key, text));
    record->connections++;
    s->accepted_connections++;
    s->handshakes--;
    set_stage(c, FGF_STAGE_HELLO);
    replace_older(c);
}

static void welcome(fgf_connection *c, const fgf_message *m) {
    fgf_server *s = c->server;
    const char *job = s->options.state.job;
    if (m->code != FGF_PROTOCOL) {
        refuse(c, FGF_REFUSE_PROTOCOL,
               "the client has version %u of the protocol, and the server %u: install the same "
               "release on both sides",
               m->code, FGF_PROTOCOL);
        return;
    }
    answer(c, &(fgf_message){.type = FGF_WELCOME,
                             .run = s->run,
                             .layout_hash = s->layout_hash,
                             .elements = s->count,
                             .round = s->round,
                             .rounds = s->options.rule.rounds,
                             .bytes = s->upload_max,
                             .text = {(const unsigned char *)job, strlen(job)}});
    set_stage(c, FGF_STAGE_JOIN);
}

static void join(fgf_connection *c, const fgf_message *m) {
    fgf_server *s = c->server;
    if (is_other_run(c, m))
        return;
    if (m->layout_hash != s->layout_hash || m->elements != s->count) {
        refuse(c, FGF_REFUSE_MODEL,
               "the client's model has %llu parameters and other tensors than that of the run (%llu): use the run's "
               "model, "
               "and data with the same classes and sizes",
               (unsigned long long)m->elements, (unsigned long long)s->count);
        return;
    }
    fgf_book_find(&s->book, &c->key)->examples = m->examples;
    fgf_server_log(s, "%s: joined with %llu examples", c->name, (unsigned long long)m->examples);
    answer(c, &(fgf_message){.type = FGF_JOINED, .round = s->round});
    set_stage(c, FGF_STAGE_READY);
}

/* Whether the client can work on the open round, or get the last weights. */
static bool has_news(const fgf_connection *c) {
    const fgf_server *s = c->server;
    const fgf_client_record *record = fgf_book_find(&s->book, &c->key);
    if (!s->published)
        return false;
    if (s->round >= s->options.rule.rounds)
        return true;
    return record->base == FGF_NO_VERSION || record->base < s->round;
}

void fgf_connection_try_weights(fgf_connection *c) {
    fgf_server *s = c->server;
    if (c->stage != FGF_STAGE_WAITING || !has_news(c))
        return;
    if (s->round >= s->options.rule.rounds && c->have == s->round) {
        answer(c, &(fgf_message){.type = FGF_DONE, .rounds = s->options.rule.rounds});
        set_stage(c, FGF_STAGE_READY);
        return;
    }
    c->blob = fgf_blob_get(s, c->have);
    if (!c->blob) {
        refuse(c, FGF_REFUSE_RETRY, "the server cannot store weights for clients now (%s): try again later",
               strerror(errno));
        return;
    }
    bool continues = c->resume <= c->blob->len && c->resume_checksum == c->blob->checksum;
    c->blob_at = continues ? c->resume : 0;
    answer(c, &(fgf_message){.type = FGF_WEIGHTS,
                             .round = c->blob->round,
                             .have = c->have,
                             .bytes = c->blob->len,
                             .offset = c->blob_at,
                             .checksum = c->blob->checksum});
    set_stage(c, FGF_STAGE_SENDING);
}

static void send_blob(fgf_connection *c) {
    unsigned char chunk[FGF_CHUNK];
    while (c->stage == FGF_STAGE_SENDING && !c->closed && fgf_stream_has_room(&c->stream)) {
        uint64_t left = c->blob->len - c->blob_at;
        size_t len = left < FGF_CHUNK ? (size_t)left : FGF_CHUNK;
        if (pread(c->blob->fd, chunk, len, (off_t)c->blob_at) != (ssize_t)len) {
            end_connection(c, "the weights cannot be read back from their file");
            return;
        }
        if (len > 0)
            answer(c, &(fgf_message){.type = FGF_CHUNK_DATA, .offset = c->blob_at, .text = {chunk, len}});
        c->blob_at += len;
        if (c->blob_at == c->blob->len) {
            fgf_blob_release(c->server, c->blob);
            c->blob = NULL;
            set_stage(c, FGF_STAGE_READY);
        }
    }
}

static void pull(fgf_connection *c, const fgf_message *m) {
    if (is_other_run(c, m))
        return;
    bool known = m->have == FGF_NO_VERSION || m->have <= c->server->round;
    c->have = known ? m->have : FGF_NO_VERSION;
    c->resume = m->offset;
    c->resume_checksum = m->checksum;
    set_stage(c, FGF_STAGE_WAITING);
    fgf_connection_try_weights(c);
}

static void confirm(fgf_connection *c, uint64_t base, uint64_t upload) {
    answer(c, &(fgf_message){.type = FGF_CONFIRM, .round = base, .upload = upload});
    set_stage(c, FGF_STAGE_READY);
}

static void complete_upload(fgf_connection *c) {
    set_stage(c, FGF_STAGE_CHECKING);
    if (fgf_round_check_update(c) != 0)
        refuse(c, FGF_REFUSE_RETRY, "the server has not enough memory now: try again later");
}

static void begin_upload(fgf_connection *c, const fgf_message *m) {
    fgio_reason why;
    c->update = (fgf_update){.run = m->run,
                             .client = c->key,
                             .base = m->round,
                             .upload = m->upload,
                             .examples = m->examples,
                             .bytes = m->bytes,
                             .checksum = m->checksum,
                             .loss = m->loss};
    if (c->update_fd >= 0)
        close(c->update_fd);
    c->update_fd = fgf_update_begin(c->server->options.state.directory, &c->update, &c->update_at, &why);
    if (c->update_fd < 0) {
        refuse(c, FGF_REFUSE_RETRY, "the server cannot store updates now (%s): try again later", why.text);
        return;
    }
    answer(c, &(fgf_message){.type = FGF_SEND, .upload = m->upload, .offset = c->update_at});
    set_stage(c, FGF_STAGE_UPLOAD);
    if (c->update_at == c->update.bytes)
        complete_upload(c);
}

static void offer(fgf_connection *c, const fgf_message *m) {
    fgf_server *s = c->server;
    unsigned long long base = m->round, round = s->round;
    if (is_other_run(c, m))
        return;
    if (m->bytes == 0 || m->bytes > s->upload_max) {
        refuse(c, FGF_REFUSE_SIZE, "an update of %llu bytes; those of this run have 1 to %llu",
               (unsigned long long)m->bytes, (unsigned long long)s->upload_max);
        return;
    }
    if (fgf_round_is_checking(s, &c->key)) {
        refuse(c, FGF_REFUSE_RETRY, "an update of this client is being checked: try again later");
        return;
    }
    switch (fgf_round_judge(&s->options.rule, fgf_book_find(&s->book, &c->key), s->round, m->round, m->upload)) {
    case FGF_VERDICT_CONFIRMED: confirm(c, m->round, m->upload); break;
    case FGF_VERDICT_DOUBLE:
        refuse(c, FGF_REFUSE_DOUBLE, "another update of this client for round %llu or a later one is counted", base);
        break;
    case FGF_VERDICT_STALE:
        refuse(c, FGF_REFUSE_STALE, "the update is of round %llu, and the run is at %llu: get the new weights", base,
               round);
        break;
    case FGF_VERDICT_FUTURE:
        refuse(c, FGF_REFUSE_INVALID, "the update is of round %llu, which has not begun", base);
        break;
    default: begin_upload(c, m);
    }
}

static void receive_chunk(fgf_connection *c, const fgf_message *m) {
    fgio_reason why;
    if (m->offset != c->update_at || m->text.len == 0 || m->text.len > c->update.bytes - c->update_at) {
        refuse(c, FGF_REFUSE_PROTOCOL, "a chunk at %llu where %llu was expected", (unsigned long long)m->offset,
               (unsigned long long)c->update_at);
        return;
    }
    if (fgf_update_write(c->update_fd, c->update_at, m->text.data, m->text.len, &why) != 0) {
        close(c->update_fd);
        c->update_fd = -1;
        refuse(c, FGF_REFUSE_RETRY, "the server cannot store the update now (%s): try again later", why.text);
        return;
    }
    c->update_at += m->text.len;
    if (c->update_at == c->update.bytes)
        complete_upload(c);
}

void fgf_connection_checked(fgf_connection *c, const fgf_check *check) {
    const fgf_update *u = &check->update;
    if (c->stage != FGF_STAGE_CHECKING || c->update.upload != u->upload)
        return;
    if (check->status == 0)
        confirm(c, u->base, u->upload);
    else
        refuse(c, check->code, "the update of round %llu: %s", (unsigned long long)u->base, check->why.text);
    fgf_connection_serve(c);
}

/* ---- what arrives ---- */

static bool is_within_budget(fgf_connection *c, const fgf_message *m) {
    double now = frugi_clock();
    if (m->type == FGF_CHUNK_DATA)
        return true; /* an upload has a size */
    c->budget += (now - c->budget_at) * FGF_REQUESTS_RATE;
    c->budget = c->budget < FGF_REQUESTS_BURST ? c->budget : FGF_REQUESTS_BURST;
    c->budget_at = now;
    c->budget -= 1;
    return c->budget >= 0;
}

static void handle(fgf_connection *c, const fgf_message *m) {
    if (!is_within_budget(c, m))
        refuse(c, FGF_REFUSE_RATE, "too many requests");
    else if (c->stage == FGF_STAGE_HELLO && m->type == FGF_HELLO)
        welcome(c, m);
    else if (c->stage == FGF_STAGE_JOIN && m->type == FGF_JOIN)
        join(c, m);
    else if (c->stage == FGF_STAGE_READY && m->type == FGF_PULL)
        pull(c, m);
    else if (c->stage == FGF_STAGE_READY && m->type == FGF_OFFER)
        offer(c, m);
    else if (c->stage == FGF_STAGE_UPLOAD && m->type == FGF_CHUNK_DATA)
        receive_chunk(c, m);
    else
        refuse(c, FGF_REFUSE_PROTOCOL, "%s is not expected here", fgf_message_name(m->type));
}

static void read_messages(fgf_connection *c) {
    fgf_message message;
    fgio_reason why;
    int i;
    c->again = false;
    for (i = 0; i < MESSAGES_AT_ONCE && !c->closed && c->stage != FGF_STAGE_CHECKING && c->stage != FGF_STAGE_LEAVING;
         i++) {
        bool had = fgf_stream_is_receiving(&c->stream);
        int result = fgf_stream_receive(&c->stream, &message, &why);
        if (result == FGF_AGAIN) {
            if (!had && fgf_stream_is_receiving(&c->stream))
                c->progress = frugi_clock();
            return;
        }
        if (result == FGF_FAILED && !fgf_stream_is_damaged(&c->stream)) {
            fgf_server_log(c->server, "%s: left", c->name);
            c->closed = true;
            return;
        }
        if (result == FGF_FAILED)
            refuse(c, FGF_REFUSE_PROTOCOL, "%s", why.text);
        else
            handle(c, &message);
        c->progress = frugi_clock();
    }
    c->again = i == MESSAGES_AT_ONCE;
}

/* A client that reads as fast as the server writes must not keep the others from theirs. */
static void write_messages(fgf_connection *c) {
    fgio_reason why;
    int result = 1;
    for (int i = 0; i < CHUNKS_AT_ONCE && result == 1 && !c->closed; i++) {
        send_blob(c);
        size_t before = c->stream.out_len - c->stream.out_at;
        if (before == 0)
            break;
        result = fgf_stream_flush(&c->stream, &why);
        if (c->stream.out_len - c->stream.out_at < before)
            c->progress = frugi_clock();
    }
    c->again |= result == 1 && c->stage == FGF_STAGE_SENDING;
    if (result == FGF_FAILED)
        end_connection(c, why.text);
    else if (result == 1 && c->stage == FGF_STAGE_LEAVING)
        c->closed = true;
}

void fgf_connection_serve(fgf_connection *c) {
    if (c->stage == FGF_STAGE_HANDSHAKE)
        shake_hands(c);
    if (c->stage != FGF_STAGE_HANDSHAKE && !c->closed)
        read_messages(c);
    if (c->stage != FGF_STAGE_HANDSHAKE && !c->closed)
        write_messages(c);
    if (!c->closed)
        watch_events(c);
}

void fgf_connection_sweep(fgf_connection *c, double now) {
    bool writing = c->stream.out_len > c->stream.out_at;
    count_traffic(c);
    if (c->stage == FGF_STAGE_HANDSHAKE && now - c->began > FGF_HANDSHAKE_SECONDS)
        refuse_handshake(c, "the handshake took too long");
    else if (fgf_stream_is_receiving(&c->stream) && now - c->progress > FGF_MESSAGE_SECONDS)
        end_connection(c, "a message arrives too slowly");
    else if (writing && now - c->progress > FGF_MESSAGE_SECONDS)
        end_connection(c, "the client does not read");
    else if (c->stage == FGF_STAGE_UPLOAD && now - c->progress > FGF_MESSAGE_SECONDS)
        end_connection(c, "the update stopped arriving");
    else if ((c->stage == FGF_STAGE_HELLO || c->stage == FGF_STAGE_READY || c->stage == FGF_STAGE_JOIN) &&
             now - c->began > FGF_IDLE_SECONDS)
        end_connection(c, "nothing was heard for an hour");
    if (c->closed || c->stage != FGF_STAGE_WAITING)
        return;
    fgf_connection_try_weights(c);
    if (c->stage == FGF_STAGE_WAITING && now - c->waited > FGF_WAIT_SECONDS) {
        answer(c, &(fgf_message){.type = FGF_WAIT, .round = c->server->round});
        c->waited = now;
    }
    fgf_connection_serve(c);
}
