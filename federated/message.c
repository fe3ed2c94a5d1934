/*
 * message.c - one table says which fields the payload of each type has; the encoder and the parser both walk it.
 */
#include "federated/message.h"

#include "base/float_bits.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define TEXT_MAX 16384u /* of a job */
#define LINE_MAX 1024u  /* of other texts */

typedef enum kind { U32, U64, F64, RUN, TEXT } kind;

/** One field of a payload. */
typedef struct field {
    kind kind;
    size_t at; /* in fgf_message */
} field;

#define FIELDS_MAX 8

/** The payload of a type. */
typedef struct form {
    const char *name;
    size_t text_max; /* bytes of the last field, a text; 0: it has none */
    size_t fields;
    field field[FIELDS_MAX];
} form;

#define AT(member) offsetof(fgf_message, member)

static const form forms[FGF_MESSAGE_TYPES] = {
    [FGF_HELLO] = {"HELLO", LINE_MAX, 2, {{U32, AT(code)}, {TEXT, AT(text)}}},
    [FGF_WELCOME] = {"WELCOME",
                     TEXT_MAX,
                     7,
                     {{RUN, AT(run)},
                      {U64, AT(layout_hash)},
                      {U64, AT(elements)},
                      {U64, AT(round)},
                      {U64, AT(rounds)},
                      {U64, AT(bytes)},
                      {TEXT, AT(text)}}},
    [FGF_JOIN] = {"JOIN", 0, 4, {{RUN, AT(run)}, {U64, AT(layout_hash)}, {U64, AT(elements)}, {U64, AT(examples)}}},
    [FGF_JOINED] = {"JOINED", 0, 1, {{U64, AT(round)}}},
    [FGF_PULL] = {"PULL", 0, 4, {{RUN, AT(run)}, {U64, AT(have)}, {U64, AT(offset)}, {U32, AT(checksum)}}},
    [FGF_WEIGHTS] = {"WEIGHTS",
                     0,
                     5,
                     {{U64, AT(round)}, {U64, AT(have)}, {U64, AT(bytes)}, {U64, AT(offset)}, {U32, AT(checksum)}}},
    [FGF_CHUNK_DATA] = {"CHUNK", FGF_CHUNK, 2, {{U64, AT(offset)}, {TEXT, AT(text)}}},
    [FGF_OFFER] = {"OFFER",
                   0,
                   7,
                   {{RUN, AT(run)},
                    {U64, AT(round)},
                    {U64, AT(upload)},
                    {U64, AT(examples)},
                    {U64, AT(bytes)},
                    {U32, AT(checksum)},
                    {F64, AT(loss)}}},
    [FGF_SEND] = {"SEND", 0, 2, {{U64, AT(upload)}, {U64, AT(offset)}}},
    [FGF_CONFIRM] = {"CONFIRM", 0, 2, {{U64, AT(round)}, {U64, AT(upload)}}},
    [FGF_REFUSE] = {"REFUSE", LINE_MAX, 2, {{U32, AT(code)}, {TEXT, AT(text)}}},
    [FGF_WAIT] = {"WAIT", 0, 1, {{U64, AT(round)}}},
    [FGF_DONE] = {"DONE", 0, 1, {{U64, AT(rounds)}}},
};

static const size_t field_bytes[] = {[U32] = 4, [U64] = 8, [F64] = 8, [RUN] = FGF_RUN_ID, [TEXT] = 0};

const char *fgf_message_name(unsigned type) {
    return type < FGF_MESSAGE_TYPES ? forms[type].name : NULL;
}

static size_t fixed_bytes(const form *f) {
    size_t sum = 0;
    for (size_t i = 0; i < f->fields; i++)
        sum += field_bytes[f->field[i].kind];
    return sum;
}

size_t fgf_message_size(const fgf_message *m) {
    const form *f = &forms[m->type];
    return FGF_HEADER + fixed_bytes(f) + (f->text_max ? m->text.len : 0);
}

void fgf_message_encode(const fgf_message *m, unsigned char *dst) {
    const form *f = &forms[m->type];
    dst[0] = 'F';
    dst[1] = 'G';
    dst[2] = FGF_PROTOCOL;
    dst[3] = (unsigned char)m->type;
    frugi_put32(dst + 4, (uint32_t)(fgf_message_size(m) - FGF_HEADER));
    dst += FGF_HEADER;
    for (size_t i = 0; i < f->fields; i++) {
        const unsigned char *from = (const unsigned char *)m + f->field[i].at;
        if (f->field[i].kind == TEXT && m->text.len)
            memcpy(dst, m->text.data, m->text.len);
        else
            memcpy(dst, from, field_bytes[f->field[i].kind]);
        dst += field_bytes[f->field[i].kind];
    }
}

int fgf_message_header(const unsigned char *bytes, fgf_message_type *type, size_t *payload, fgio_reason *why) {
    size_t length = frugi_get32(bytes + 4);
    if (bytes[0] != 'F' || bytes[1] != 'G')
        return fgio_fail(why, "this is no message of FruGrad");
    if (bytes[2] != FGF_PROTOCOL)
        return fgio_fail(why,
                         "version %u of the protocol, and this program has %u: install the same release on both "
                         "sides",
                         bytes[2], FGF_PROTOCOL);
    if (bytes[3] >= FGF_MESSAGE_TYPES || !forms[bytes[3]].name)
        return fgio_fail(why, "unknown message %u", bytes[3]);
    const form *f = &forms[bytes[3]];
    size_t fixed = fixed_bytes(f);
    if (length < fixed || length > fixed + f->text_max)
        return fgio_fail(why, "%s has %zu bytes: expected %zu to %zu", f->name, length, fixed, fixed + f->text_max);
    *type = (fgf_message_type)bytes[3];
    *payload = length;
    return 0;
}

int fgf_message_parse(const unsigned char *bytes, size_t len, fgf_message *message, fgio_reason *why) {
    fgf_message m = {0};
    size_t payload;
    if (len < FGF_HEADER)
        return fgio_fail(why, "%zu bytes are no message", len);
    if (fgf_message_header(bytes, &m.type, &payload, why) != 0)
        return -1;
    const form *f = &forms[m.type];
    if (len != FGF_HEADER + payload)
        return fgio_fail(why, "%s has %zu bytes instead of %zu", f->name, len - FGF_HEADER, payload);
    const unsigned char *from = bytes + FGF_HEADER;
    for (size_t i = 0; i < f->fields; i++) {
        size_t size = field_bytes[f->field[i].kind];
        if (f->field[i].kind == TEXT)
            m.text = (fgf_span){from, (size_t)(bytes + len - from)};
        else
            memcpy((unsigned char *)&m + f->field[i].at, from, size);
        from += size;
    }
    if (m.type == FGF_OFFER && !isfinite(m.loss))
        m.loss = (double)NAN;
    *message = m;
    return 0;
}
