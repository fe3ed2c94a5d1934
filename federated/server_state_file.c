/*
 * server_state_file.c - the file DIR/state:
 *
 *   header      magic, run, hash of job and layout, round, parameters, lengths of the parts, CRC-32C of all that
 * follows weights     f32 changed     u32 optimizer   as the library saves it down        likewise; empty without it
 *   book        records of clients
 */
#include "federated/server_state_file.h"

#include "base/crc32c.h"
#include "base/float_bits.h"
#include "base/hash.h"
#include "io/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[8] = {'F', 'R', 'U', 'G', 'S', 'R', 'V', '1'};

#define HEADER 88u

/** Lengths of what follows the header. */
typedef struct lengths {
    uint64_t weights, changed, optimizer, down, book;
} lengths;

static void state_path(const fgf_state *s, char *path) {
    snprintf(path, FGF_PATH_MAX, "%s/state", s->options.directory);
}

bool fgf_state_file_exists(const fgf_state *s) {
    char path[FGF_PATH_MAX];
    state_path(s, path);
    return fgio_file_exists(path);
}

/* Whatever changes the result of a round is part of the identity of a run. */
static uint64_t identity(const fgf_state *s) {
    uint64_t hash = frugi_hash_text(FRUGI_HASH_INIT, s->options.job);
    hash = frugi_hash_word(hash, frug_layout_hash(s->options.layout));
    hash = frugi_hash_text(hash, frug_optimizer_text(s->optimizer));
    hash = frugi_hash_bytes(hash, &s->rate, sizeof s->rate);
    return frugi_hash_text(hash, s->options.down ? s->options.down : "");
}

static lengths measure(const fgf_state *s, uint64_t clients) {
    return (lengths){s->count * 4, s->count * 4, frug_optimizer_state_size(s->optimizer),
                     s->down ? frug_compressor_state_size(s->down) : 0, clients * sizeof(fgf_client_record)};
}

static uint64_t total(const lengths *l) {
    return HEADER + l->weights + l->changed + l->optimizer + l->down + l->book;
}

static void write_header(const fgf_state *s, const lengths *l, uint32_t checksum, unsigned char *to) {
    memcpy(to, magic, sizeof magic);
    memcpy(to + 8, s->run.bytes, FGF_RUN_ID);
    const uint64_t numbers[] = {identity(s), s->round, s->count, l->optimizer, l->down, l->book, checksum};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        frugi_put64(to + 24 + 8 * i, numbers[i]);
    frugi_put32(to + 80, 0);
    frugi_put32(to + 84, frugi_crc32c(0, to, 84));
}

static int write_all(const fgf_state *s, const unsigned char *header, const unsigned char *small, const lengths *l) {
    char path[FGF_PATH_MAX];
    fgio_writer writer = FGIO_WRITER_CLOSED;
    state_path(s, path);
    int status = fgio_writer_open(path, &writer);
    if (status == FGIO_EXIT_OK)
        status = fgio_writer_put(&writer, header, HEADER);
    if (status == FGIO_EXIT_OK)
        status = fgio_writer_put(&writer, s->weights, l->weights);
    if (status == FGIO_EXIT_OK)
        status = fgio_writer_put(&writer, s->changed, l->changed);
    if (status == FGIO_EXIT_OK)
        status = fgio_writer_put(&writer, small, l->optimizer + l->down + l->book);
    if (status == FGIO_EXIT_OK)
        return fgio_writer_commit(&writer);
    fgio_writer_abort(&writer);
    return status;
}

int fgf_state_save(const fgf_state *s, const fgf_book *book, fgio_reason *why) {
    lengths l = measure(s, book->count);
    unsigned char header[HEADER], *small = malloc(l.optimizer + l.down + l.book + 1);
    size_t len = 0;
    if (!small)
        return fgio_fail(why, "not enough memory to save the state");
    frug_status saved = frug_optimizer_save(s->optimizer, small, l.optimizer, &len);
    if (saved == FRUG_OK && s->down)
        saved = frug_compressor_save(s->down, small + l.optimizer, l.down, &len);
    if (l.book)
        memcpy(small + l.optimizer + l.down, book->client, l.book);
    uint32_t checksum = frugi_crc32c(0, s->weights, l.weights);
    checksum = frugi_crc32c(checksum, s->changed, l.changed);
    checksum = frugi_crc32c(checksum, small, l.optimizer + l.down + l.book);
    write_header(s, &l, checksum, header);
    int status = saved == FRUG_OK ? write_all(s, header, small, &l) : FGIO_EXIT_FAIL;
    free(small);
    return status == FGIO_EXIT_OK ? 0 : fgio_fail(why, "the state cannot be written into %s", s->options.directory);
}

/* Checks the header and the lengths of a file. */
static int check_file(const fgf_state *s, const fgio_bytes *file, lengths *l, fgio_reason *why) {
    const unsigned char *h = file->data;
    if (file->len < HEADER || memcmp(h, magic, sizeof magic) != 0 || frugi_get32(h + 84) != frugi_crc32c(0, h, 84))
        return fgio_fail(why, "%s/state is damaged, or no state of 'frugrad serve'", s->options.directory);
    if (frugi_get64(h + 24) != identity(s) || frugi_get64(h + 40) != s->count)
        return fgio_fail(
            why,
            "%s has a run with another model, data, config, optimizer, rate, seed, down or number of rounds: "
            "repeat its options, or name another directory",
            s->options.directory);
    uint64_t book = frugi_get64(h + 64);
    *l = measure(s, book / sizeof(fgf_client_record));
    l->optimizer = frugi_get64(h + 48);
    if (book % sizeof(fgf_client_record) != 0 || l->optimizer > file->len || frugi_get64(h + 56) != l->down ||
        total(l) != file->len || (uint32_t)frugi_get64(h + 72) != frugi_crc32c(0, h + HEADER, file->len - HEADER))
        return fgio_fail(why, "%s/state is damaged", s->options.directory);
    return 0;
}

static int read_parts(fgf_state *s, const unsigned char *h, const lengths *l, fgf_book *book, fgio_reason *why) {
    const unsigned char *from = h + HEADER, *optimizer = from + l->weights + l->changed;
    const unsigned char *down = optimizer + l->optimizer, *records = down + l->down;
    fgf_client_record *clients = malloc(l->book + 1);
    if (!clients)
        return fgio_fail(why, "not enough memory");
    if (frug_optimizer_restore(s->optimizer, optimizer, l->optimizer) != FRUG_OK ||
        (s->down && frug_compressor_restore(s->down, down, l->down) != FRUG_OK)) {
        free(clients);
        return fgio_fail(why, "%s/state: %s", s->options.directory, frug_last_error());
    }
    memcpy(s->weights, from, l->weights);
    memcpy(s->changed, from + l->weights, l->changed);
    memcpy(clients, records, l->book);
    if (book) {
        fgf_book_free(book);
        *book = (fgf_book){clients, l->book / sizeof *clients, l->book / sizeof *clients};
    } else {
        free(clients);
    }
    memcpy(s->run.bytes, h + 8, FGF_RUN_ID);
    s->round = frugi_get64(h + 32);
    return 0;
}

int fgf_state_reload(fgf_state *s, fgf_book *book, fgio_reason *why) {
    char path[FGF_PATH_MAX];
    fgio_bytes file = {0};
    lengths l = {0};
    state_path(s, path);
    fgio_directory_clean(s->options.directory);
    if (fgio_file_read(path, &file) != FGIO_EXIT_OK)
        return fgio_fail(why, "%s cannot be read", path);
    int status = check_file(s, &file, &l, why);
    if (status == 0)
        status = read_parts(s, file.data, &l, book, why);
    fgio_bytes_free(&file);
    return status;
}
