/*
 * cmd_data.c - `frugrad data`: prepares a data set for training.
 *
 * linux-text: a sample of Linux's source and documentation, tokenized by a BPE that is learned from its training split.
 *
 * Tokens have a meaning only with their vocabulary. All files are written under temporary names, which are made before
 * the archive is read, and get their own when all are complete. The training tokens, without which a directory is no
 * data set, are removed before the first rename and renamed last.
 */
#include "base/crc32c.h"
#include "io/files.h"
#include "io/json.h"
#include "io/progress.h"
#include "program/args/commands.h"
#include "trainer/data/bpe.h"
#include "trainer/data/bpe_train.h"
#include "trainer/data/linux_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const sets[] = {"linux-text", NULL};
static const char *const split_names[FGT_SPLITS] = {"train", "valid", "test"};

/* The tokens of each split, by its number, then the rest. They are renamed from the last to the first. */
enum { VOCABULARY = FGT_SPLITS, MERGES, SUMMARY, FILES };
static const char *const file_names[FILES] = {"train.u16",  "valid.u16",  "test.u16",
                                              "vocab.json", "merges.txt", "summary.json"};

static const fgp_opt options[] = {
    {"source", 's', "FILE", "/usr/src/linux-source-6.1.tar.xz",
     "the archive of Debian's package linux-source-6.1, or another of a Linux: .tar, .tar.xz, .tar.gz"},
    {"percent", 'p', "N", "10", "of the source files, by a hash of their names; documentation is complete"},
    {"vocab", 'v', "N", "16384", "tokens of the vocabulary, 257 to 65536"},
    {"json", 'j', NULL, NULL, "print the summary as one JSON object"},
    {NULL, 0, NULL, NULL, NULL},
};

/** What a run makes. */
typedef struct preparation {
    const char *source, *directory;
    uint64_t percent, vocab;
    fgt_corpus corpus;
    fgt_bpe *bpe;
    uint64_t files[FGT_SPLITS], bytes[FGT_SPLITS], tokens[FGT_SPLITS];
    uint32_t checksum[FGT_SPLITS];
    fgio_writer writers[FILES];
} preparation;

/* ---- the files ---- */

static int open_file(preparation *p, int file) {
    size_t room = strlen(p->directory) + strlen(file_names[file]) + 2;
    char *path = malloc(room);
    if (path == NULL)
        return fgio_error("not enough memory");
    snprintf(path, room, "%s/%s", p->directory, file_names[file]);
    int status = fgio_writer_open(path, &p->writers[file]);
    free(path);
    return status;
}

static int open_files(preparation *p) {
    int status = fgio_directory_make(p->directory);
    if (status == FGIO_EXIT_OK)
        fgio_directory_clean(p->directory);
    for (int i = 0; i < FILES && status == FGIO_EXIT_OK; i++)
        status = open_file(p, i);
    return status;
}

/* Writes all of a file, and to the disk, so that only the rename remains. */
static int write_file(preparation *p, int file, const void *data, size_t len) {
    int status = fgio_writer_put(&p->writers[file], data, len);
    return status == FGIO_EXIT_OK ? fgio_writer_sync(&p->writers[file]) : status;
}

static int rename_files(preparation *p) {
    const fgio_writer *train = &p->writers[FGT_TRAIN];
    int status = FGIO_EXIT_OK;
    if (train->target != NULL && unlink(train->target) != 0 && errno != ENOENT)
        status = fgio_error("%s: cannot replace: %s", train->path, strerror(errno));
    for (int i = FILES - 1; i >= 0 && status == FGIO_EXIT_OK; i--)
        status = fgio_writer_commit(&p->writers[i]);
    return status;
}

/* ---- the vocabulary ---- */

static int count_words(const preparation *p, fgt_string_map *counts) {
    int status = FGIO_EXIT_OK;
    fgio_progress *meter = fgio_progress_begin(p->corpus.count, "counting words");
    for (size_t i = 0; i < p->corpus.count && status == FGIO_EXIT_OK; i++) {
        const fgt_document *d = &p->corpus.documents[i];
        if (d->split == FGT_TRAIN && fgt_bpe_count_words(counts, p->corpus.text + d->at, d->len) != 0)
            status = fgio_error("not enough memory to count words");
        fgio_progress_update(meter, i);
    }
    fgio_progress_end(meter);
    return status;
}

/* Reads what has been learned as a tokenizer does that reads it from files. */
static int load_vocabulary(preparation *p, const fgio_bytes *vocabulary, const fgio_bytes *merges) {
    fgio_reason why;
    if (fgt_bpe_create(vocabulary->data, vocabulary->len, &p->bpe, &why) != 0 ||
        fgt_bpe_merges(p->bpe, merges->data, merges->len, &why) != 0)
        return fgio_error("the vocabulary is unusable: %s", why.text);
    return FGIO_EXIT_OK;
}

static int learn_vocabulary(preparation *p) {
    fgt_string_map counts = {0};
    fgio_bytes vocabulary = {NULL, 0}, merges = {NULL, 0};
    fgio_reason why;
    int status = count_words(p, &counts);
    fgio_progress *meter = fgio_progress_begin(0, "learning %" PRIu64 " tokens", p->vocab);
    if (status == FGIO_EXIT_OK && fgt_bpe_train(&counts, (uint32_t)p->vocab, &vocabulary, &merges, &why) != 0)
        status = fgio_error("%s: %s", p->source, why.text);
    fgio_progress_end(meter);
    fgt_string_map_free(&counts);
    if (status == FGIO_EXIT_OK)
        status = load_vocabulary(p, &vocabulary, &merges);
    if (status == FGIO_EXIT_OK)
        status = write_file(p, VOCABULARY, vocabulary.data, vocabulary.len);
    if (status == FGIO_EXIT_OK)
        status = write_file(p, MERGES, merges.data, merges.len);
    fgio_bytes_free(&vocabulary);
    fgio_bytes_free(&merges);
    return status;
}

/* ---- the tokens ---- */

/* Token ids as little-endian numbers, in place. */
static void to_little_endian(fgt_ids *ids) {
    unsigned char *byte = ids->data;
    for (size_t i = 0; i < ids->len; i++) {
        uint16_t id = ((const uint16_t *)ids->data)[i];
        byte[2 * i] = (unsigned char)(id & 0xFF);
        byte[2 * i + 1] = (unsigned char)(id >> 8);
    }
}

static int encode_split(preparation *p, fgt_split split, fgt_ids *ids) {
    uint32_t ends = (uint32_t)fgt_bpe_end(p->bpe);
    fgio_progress *meter = fgio_progress_begin(p->corpus.count, "tokenizing %s", split_names[split]);
    int bad = 0;
    for (size_t i = 0; i < p->corpus.count && !bad; i++) {
        const fgt_document *d = &p->corpus.documents[i];
        fgio_progress_update(meter, i);
        if (d->split != split)
            continue;
        bad = fgt_bpe_encode(p->bpe, p->corpus.text + d->at, d->len, ids) != 0 || fgt_ids_push(ids, ends) != 0;
        p->files[split]++;
        p->bytes[split] += d->len;
    }
    fgio_progress_end(meter);
    return bad ? fgio_error("not enough memory for the tokens") : FGIO_EXIT_OK;
}

static int write_split(preparation *p, fgt_split split) {
    fgt_ids ids = {0};
    int status = encode_split(p, split, &ids);
    if (status == FGIO_EXIT_OK && ids.len == 0)
        status = fgio_error("%s: no file of it is in the %s split; expected an archive of Linux", p->source,
                            split_names[split]);
    if (status == FGIO_EXIT_OK) {
        to_little_endian(&ids);
        p->tokens[split] = ids.len;
        p->checksum[split] = frugi_crc32c(0, ids.data, 2 * ids.len);
        status = write_file(p, (int)split, ids.data, 2 * ids.len);
    }
    fgt_ids_free(&ids);
    return status;
}

/* ---- the command ---- */

static json_t *summary(const preparation *p) {
    json_t *root = json_object(), *splits = json_object();
    const char *slash = strrchr(p->source, '/');
    json_object_set_new(root, "set", json_string(sets[0]));
    json_object_set_new(root, "source", fgio_json_text(slash == NULL ? p->source : slash + 1));
    json_object_set_new(root, "percent", json_integer((json_int_t)p->percent));
    json_object_set_new(root, "vocab", json_integer((json_int_t)p->vocab));
    for (int i = 0; i < FGT_SPLITS; i++) {
        char checksum[16];
        snprintf(checksum, sizeof checksum, "%08" PRIx32, p->checksum[i]);
        json_object_set_new(splits, split_names[i],
                            json_pack("{sI sI sI ss}", "files", (json_int_t)p->files[i], "bytes",
                                      (json_int_t)p->bytes[i], "tokens", (json_int_t)p->tokens[i], "crc32c", checksum));
    }
    json_object_set_new(root, "splits", splits);
    return root;
}

static int finish(preparation *p, int json) {
    json_t *root = summary(p);
    char *text = json_dumps(root, JSON_INDENT(2));
    int status = text == NULL ? fgio_error("not enough memory") : write_file(p, SUMMARY, text, strlen(text));
    free(text);
    if (status == FGIO_EXIT_OK)
        status = rename_files(p);
    if (status == FGIO_EXIT_OK && json)
        return fgio_json_print(root, JSON_INDENT(2), stdout);
    json_decref(root);
    for (int i = 0; i < FGT_SPLITS && status == FGIO_EXIT_OK; i++)
        printf("%-5s %8" PRIu64 " files %12" PRIu64 " bytes %11" PRIu64 " tokens\n", split_names[i], p->files[i],
               p->bytes[i], p->tokens[i]);
    return status;
}

static int prepare(preparation *p, int json) {
    int status = fgt_linux_text_read(p->source, (uint32_t)p->percent, &p->corpus);
    if (status != FGIO_EXIT_OK)
        fgio_hint("apt-get install linux-source-6.1 puts the archive into /usr/src; --source names another place");
    if (status == FGIO_EXIT_OK)
        status = learn_vocabulary(p);
    for (int i = 0; i < FGT_SPLITS && status == FGIO_EXIT_OK; i++)
        status = write_split(p, (fgt_split)i);
    return status == FGIO_EXIT_OK ? finish(p, json) : status;
}

/* Removes what is left after an error: temporary files, and a directory that was made. */
static void clean_up(preparation *p, int made) {
    for (int i = 0; i < FILES; i++)
        fgio_writer_abort(&p->writers[i]);
    if (made)
        rmdir(p->directory); /* nothing happens to one with files */
}

static int run(const fgp_args *args) {
    preparation p = {.source = fgp_arg(args, "source"), .directory = args->operand[1]};
    for (int i = 0; i < FILES; i++)
        p.writers[i] = (fgio_writer)FGIO_WRITER_CLOSED;
    if (strcmp(args->operand[0], sets[0]) != 0) {
        fgio_usage_error("data: there is no data set '%s' to prepare", args->operand[0]);
        fgio_hint_choices(args->operand[0], sets);
        return FGIO_EXIT_USAGE;
    }
    int status = fgp_arg_u64(args, "percent", 1, 100, &p.percent);
    if (status == FGIO_EXIT_OK)
        status = fgp_arg_u64(args, "vocab", 257, 65536, &p.vocab);
    int made = status == FGIO_EXIT_OK && access(p.directory, F_OK) != 0;
    if (status == FGIO_EXIT_OK)
        status = open_files(&p);
    if (status == FGIO_EXIT_OK)
        status = prepare(&p, fgp_arg_given(args, "json"));
    clean_up(&p, made && status != FGIO_EXIT_OK);
    fgt_bpe_destroy(p.bpe);
    fgt_corpus_free(&p.corpus);
    return status;
}

const fgp_command fgp_command_data = {
    .name = "data",
    .summary = "prepare a data set: linux-text, source and documentation of Linux as tokens",
    .operands = "SET DIRECTORY",
    .min_operands = 2,
    .max_operands = 2,
    .about =
        "Writes train.u16, valid.u16 and test.u16 (tokens as 16-bit numbers), the vocabulary that was learned from "
        "the\n"
        "training files (vocab.json, merges.txt), and summary.json. The same archive gives the same bytes.\n"
        "They replace those of an earlier run when all of them are complete.\n"
        "\n"
        "  apt-get install linux-source-6.1\n"
        "  frugrad data linux-text data/linux-text\n"
        "  frugrad train --model gpt2-small --data data/linux-text --steps 2000",
    .options = options,
    .run = run,
};
