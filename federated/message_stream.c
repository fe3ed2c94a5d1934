/* message_stream.c - messages over a channel, with bounded buffers. */
#include "federated/message_stream.h"

#include <stdlib.h>
#include <string.h>

void fgf_stream_open(fgf_stream *s, fgf_channel *channel) {
    *s = (fgf_stream){.channel = channel};
}

void fgf_stream_close(fgf_stream *s) {
    fgf_channel_destroy(s->channel);
    free(s->in);
    free(s->out);
    *s = (fgf_stream){0};
}

static void drop_returned(fgf_stream *s) {
    if (!s->returned)
        return;
    free(s->in);
    s->in = NULL;
    s->in_len = s->in_need = 0;
    s->returned = false;
}

/* After the header: memory for the whole message, whose size was checked. */
static int reserve(fgf_stream *s, fgio_reason *why) {
    fgf_message_type type;
    size_t payload;
    if (fgf_message_header(s->header, &type, &payload, why) != 0)
        return -1;
    s->in = malloc(FGF_HEADER + payload);
    if (!s->in)
        return fgio_fail(why, "not enough memory");
    memcpy(s->in, s->header, FGF_HEADER);
    s->in_need = FGF_HEADER + payload;
    return 0;
}

int fgf_stream_receive(fgf_stream *s, fgf_message *message, fgio_reason *why) {
    drop_returned(s);
    while (s->in_need == 0 || s->in_len < s->in_need) {
        unsigned char *to = s->in_need ? s->in : s->header;
        ssize_t got =
            fgf_channel_read(s->channel, to + s->in_len, (s->in_need ? s->in_need : FGF_HEADER) - s->in_len, why);
        if (got <= 0)
            return (int)got;
        s->in_len += (size_t)got;
        if (s->in_need == 0 && s->in_len == FGF_HEADER && reserve(s, why) != 0)
            return FGF_FAILED;
    }
    s->bytes_in += s->in_need;
    s->returned = true;
    return fgf_message_parse(s->in, s->in_need, message, why) == 0 ? 1 : FGF_FAILED;
}

bool fgf_stream_is_damaged(const fgf_stream *s) {
    return s->returned || (!s->in && s->in_len == FGF_HEADER);
}

bool fgf_stream_is_receiving(const fgf_stream *s) {
    return s->in_len > 0 && !s->returned;
}

bool fgf_stream_has_room(const fgf_stream *s) {
    return s->out_len + FGF_HEADER + FGF_PAYLOAD_MAX <= FGF_STREAM_QUEUE;
}

int fgf_stream_send(fgf_stream *s, const fgf_message *message, fgio_reason *why) {
    size_t size = fgf_message_size(message);
    if (s->out_at > 0) {
        memmove(s->out, s->out + s->out_at, s->out_len - s->out_at);
        s->out_len -= s->out_at;
        s->out_at = 0;
    }
    if (s->out_len + size > FGF_STREAM_QUEUE)
        return fgio_fail(why, "the peer does not read");
    unsigned char *grown = realloc(s->out, s->out_len + size);
    if (!grown)
        return fgio_fail(why, "not enough memory");
    s->out = grown;
    fgf_message_encode(message, s->out + s->out_len);
    s->out_len += size;
    s->bytes_out += size;
    return 0;
}

int fgf_stream_flush(fgf_stream *s, fgio_reason *why) {
    while (s->out_at < s->out_len) {
        ssize_t put = fgf_channel_write(s->channel, s->out + s->out_at, s->out_len - s->out_at, why);
        if (put <= 0)
            return (int)put;
        s->out_at += (size_t)put;
    }
    free(s->out);
    s->out = NULL;
    s->out_at = s->out_len = 0;
    return 1;
}
