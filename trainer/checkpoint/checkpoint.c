/*
 * Opening a checkpoint: worker 0 looks for a file that is whole, checksum and all, and tells the others what its
 * metadata says. While it reads, it gives a sign of life to the others now and then, because a file may take longer
 * than they would wait.
 */
#include "trainer/checkpoint/checkpoint_parts.h"

#include "base/crc32c.h"
#include "io/error.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { GOING_ON = 1, OPENED, FAILED }; /* what worker 0 says */
enum { WORDS = 2 };

#define FACTS_MOST     UINT64_C(100000000) /* as of headers of files */
#define WORKERS_MOST   UINT64_C(65536)
#define STEPS_MOST     (UINT64_MAX - 1)
#define NOT_OF_FRUGRAD "is no checkpoint of frugrad: its metadata has no " FGT_KEY_FORMAT

/* All hear a word and a number from worker 0. Returns an exit status of the comm. */
static int hear(fgt_checkpoint *c, uint64_t *word, uint64_t *number) {
    uint64_t mine[WORDS] = {*word, *number};
    if (frug_comm_gather(c->comm, mine, sizeof mine, c->words) != FRUG_OK)
        return fgio_library_error("checkpoint");
    *word = c->words[0];
    *number = c->words[1];
    return FGIO_EXIT_OK;
}

static int read_facts(fgt_checkpoint *c, const char *path, json_t *facts) {
    const char *format = json_string_value(json_object_get(facts, FGT_KEY_FORMAT));
    if (format == NULL)
        return fgio_error("%s: " NOT_OF_FRUGRAD, path);
    if (strcmp(format, FGT_FORMAT) != 0)
        return fgio_error("%s: is a checkpoint of format %s; this program knows format " FGT_FORMAT, path, format);
    if (!fgt_checkpoint_number(facts, FGT_KEY_STEP, STEPS_MOST, &c->step))
        return fgio_error("%s: its metadata has no step (" FGT_KEY_STEP ", a whole number)", path);
    if (!fgt_checkpoint_number(facts, FGT_KEY_WORKERS, WORKERS_MOST, &c->workers) || c->workers == 0)
        return fgio_error("%s: its metadata has no number of workers (" FGT_KEY_WORKERS ")", path);
    uint64_t generation;
    if (!fgt_checkpoint_generation(facts, &generation))
        return fgio_error("%s: its metadata has no number of a generation (" FGT_KEY_GENERATION ")", path);
    c->facts = json_incref(facts);
    return FGIO_EXIT_OK;
}

/* The checksum at the end against one over everything before it. */
static int check_sum(fgt_checkpoint *c) {
    const fgio_tensor_file *file = &c->file;
    const fgio_item *item = file->head.count == 0 ? NULL : &file->head.item[file->head.count - 1];
    unsigned char stored[FGT_CHECKSUM_BYTES];
    uint32_t sum = 0, want = 0;
    if (item == NULL || strcmp(item->name, FGT_CHECKSUM_NAME) != 0 || item->dtype != FGIO_U8 ||
        item->count != sizeof stored)
        return fgio_error("%s: has no checksum (" FGT_CHECKSUM_NAME ", %d bytes, the last tensor)", file->path,
                          FGT_CHECKSUM_BYTES);
    for (uint64_t at = 0; at < item->place;) {
        uint64_t left = item->place - at, word = GOING_ON, none = 0;
        size_t some = left < FGT_PIECE_BYTES ? (size_t)left : FGT_PIECE_BYTES;
        if (fgio_tensor_file_read(file, at, c->piece, some) != FGIO_EXIT_OK)
            return FGIO_EXIT_FAIL;
        sum = frugi_crc32c(sum, c->piece, some);
        at += some;
        if (at % FGT_MEET_BYTES == 0 && hear(c, &word, &none) != FGIO_EXIT_OK)
            return FGIO_EXIT_FAIL;
    }
    if (fgio_tensor_file_read(file, item->place, stored, sizeof stored) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    for (unsigned i = 0; i < sizeof stored; i++)
        want |= (uint32_t)stored[i] << 8 * i;
    return sum == want ? FGIO_EXIT_OK
                       : fgio_error("%s: is damaged: its checksum is %08" PRIx32 ", its bytes give %08" PRIx32,
                                    file->path, want, sum);
}

static int open_sound(fgt_checkpoint *c, const char *path) {
    const char *slash = strrchr(path, '/');
    uint64_t named;
    int code = fgio_tensor_file_open(path, &c->file);
    if (code == FGIO_EXIT_OK)
        code = read_facts(c, path, c->file.head.metadata);
    if (code == FGIO_EXIT_OK && fgt_checkpoint_name_step(slash == NULL ? path : slash + 1, &named) && named != c->step)
        code = fgio_error("%s: is of step %" PRIu64 " by its metadata, of step %" PRIu64 " by its name", path, c->step,
                          named);
    if (code == FGIO_EXIT_OK)
        code = check_sum(c);
    if (code != FGIO_EXIT_OK) {
        json_decref(c->facts);
        c->facts = NULL;
        fgio_tensor_file_close(&c->file);
    }
    return code;
}

static int open_newest(fgt_checkpoint *c, const char *directory) {
    fgt_entry *entry = NULL;
    size_t count = 0, i = 0;
    char path[PATH_MAX];
    int code = fgt_checkpoint_list(directory, &entry, &count);
    if (code != FGIO_EXIT_OK)
        return code;
    if (count == 0)
        code = fgio_error("%s: has no checkpoint (step-*.safetensors)", directory);
    for (; i < count; i++) {
        code = fgt_checkpoint_name(directory, entry[i].step, path, sizeof path)
                   ? open_sound(c, path)
                   : fgio_error("%s: the name is too long", directory);
        if (code == FGIO_EXIT_OK)
            break;
        if (i + 1 < count)
            fgio_hint("passed over; taking the checkpoint before it, of step %" PRIu64, entry[i + 1].step);
    }
    free(entry);
    return code;
}

/* Worker 0's part of opening; *text becomes what the others get. */
static int find_and_open(fgt_checkpoint *c, const char *path, char **text) {
    struct stat st;
    int code = stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? open_newest(c, path) : open_sound(c, path);
    if (code != FGIO_EXIT_OK)
        return code;
    *text = json_dumps(c->facts, JSON_COMPACT);
    return *text == NULL ? fgio_error("%s: out of memory", path) : FGIO_EXIT_OK;
}

/* Text of that many bytes from worker 0 to all, piece by piece. Only the comm's errors are returned. */
static int spread_text(fgt_checkpoint *c, char *text, size_t bytes) {
    for (size_t at = 0; at < bytes; at += FGT_PIECE_BYTES) {
        size_t some = bytes - at < FGT_PIECE_BYTES ? bytes - at : FGT_PIECE_BYTES;
        frug_status status = c->rank == 0 ? FRUG_OK : frug_comm_receive(c->comm, 0, text + at, some);
        for (int r = 1; r < c->size && c->rank == 0 && status == FRUG_OK; r++)
            status = frug_comm_send(c->comm, r, text + at, some);
        if (status != FRUG_OK)
            return fgio_library_error("checkpoint");
    }
    return FGIO_EXIT_OK;
}

/* The others' part: wait for the outcome, then take the facts. */
static int hear_facts(fgt_checkpoint *c) {
    uint64_t word = 0, bytes = 0;
    json_error_t error;
    do {
        if (hear(c, &word, &bytes) != FGIO_EXIT_OK)
            return FGIO_EXIT_FAIL;
    } while (word == GOING_ON);
    char *text = word == OPENED && bytes <= FACTS_MOST ? malloc((size_t)bytes + 1) : NULL;
    if (text == NULL)
        return word == FAILED ? FGIO_EXIT_FAIL : fgio_error("checkpoint: no memory for its metadata");
    int code = spread_text(c, text, (size_t)bytes);
    json_t *facts = code == FGIO_EXIT_OK ? json_loadb(text, (size_t)bytes, 0, &error) : NULL;
    free(text);
    if (facts == NULL)
        return FGIO_EXIT_FAIL;
    code = read_facts(c, c->path, facts);
    json_decref(facts);
    return code;
}

static int tell_facts(fgt_checkpoint *c, const char *path) {
    char *text = NULL;
    int code = find_and_open(c, path, &text);
    uint64_t word = code == FGIO_EXIT_OK ? OPENED : FAILED, bytes = text == NULL ? 0 : strlen(text);
    if (hear(c, &word, &bytes) != FGIO_EXIT_OK)
        code = FGIO_EXIT_FAIL;
    if (code == FGIO_EXIT_OK)
        code = spread_text(c, text, (size_t)bytes);
    free(text);
    return code;
}

int fgt_checkpoint_open(const char *path, frug_comm *comm, fgt_checkpoint **checkpoint, json_t **facts,
                        uint64_t *step) {
    fgt_checkpoint *c = calloc(1, sizeof *c);
    if (c == NULL)
        return fgio_error("%s: out of memory", path);
    *c = (fgt_checkpoint){.comm = comm,
                          .rank = frug_comm_rank(comm),
                          .size = frug_comm_size(comm),
                          .path = strdup(path),
                          .file = FGIO_TENSOR_FILE_CLOSED,
                          .piece = malloc(FGT_PIECE_BYTES),
                          .words = calloc((size_t)frug_comm_size(comm), WORDS * sizeof *c->words)};
    int code = c->path == NULL || c->piece == NULL || c->words == NULL ? fgio_error("%s: out of memory", path)
               : c->rank == 0                                          ? tell_facts(c, path)
                                                                       : hear_facts(c);
    if (code != FGIO_EXIT_OK) {
        fgt_checkpoint_close(c);
        return code;
    }
    *checkpoint = c;
    *facts = c->facts;
    *step = c->step;
    return FGIO_EXIT_OK;
}

int fgt_checkpoint_any(const char *directory, frug_comm *comm, bool *any) {
    unsigned char mine = frug_comm_rank(comm) == 0 && fgt_checkpoint_there(directory);
    unsigned char *all = calloc((size_t)frug_comm_size(comm), 1);
    if (all == NULL)
        return fgio_error("%s: out of memory", directory);
    int code = frug_comm_gather(comm, &mine, 1, all) == FRUG_OK ? FGIO_EXIT_OK : fgio_library_error("checkpoint");
    *any = all[0] != 0;
    free(all);
    return code;
}

void fgt_checkpoint_close(fgt_checkpoint *checkpoint) {
    if (checkpoint == NULL)
        return;
    fgio_tensor_file_close(&checkpoint->file);
    json_decref(checkpoint->facts);
    free(checkpoint->path);
    free(checkpoint->piece);
    free(checkpoint->words);
    free(checkpoint);
}
