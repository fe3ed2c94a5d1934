/*
 * cmd_tokens.c - `frugrad tokens`: the tokens of a text.
 *
 * --tokens selects the tokenizer: "bytes", a directory (GPT-2's BPE) or a file (WordPiece), as in `frugrad train`.
 */
#include "program/args/commands.h"
#include "trainer/data/tokenizer.h"
#include "trainer/data/wordpiece.h"
#include "io/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const fgp_opt options[] = {
    {"tokens", 0, "WHAT", "bytes",
     "bytes, a directory with GPT-2's encoder.json and vocab.bpe, or a WordPiece vocabulary file"},
    {"file", 'f', "FILE", NULL, "read the text from a file, - for standard input [TEXT, or standard input]"},
    {"ids", 'i', NULL, NULL, "print the ids only, on one line"},
    {"json", 'j', NULL, NULL, "print one JSON object"},
    {NULL, 0, NULL, NULL, NULL},
};

/** A tokenizer of either kind, and the tokens of the text. */
typedef struct session {
    fgt_tokenizer *tokens; /* bytes, BPE; NULL: */
    fgt_wordpiece *pieces; /* WordPiece */
    uint32_t vocab;
    fgt_ids ids;
} session;

static int open_tokenizer(const char *where, session *s) {
    struct stat st;
    int file = strcmp(where, "bytes") != 0 && stat(where, &st) == 0 && !S_ISDIR(st.st_mode);
    int status = file ? fgt_wordpiece_open(where, &s->pieces) : fgt_tokenizer_open(where, &s->tokens);
    if (status != FGIO_EXIT_OK)
        return status;
    s->vocab = file ? fgt_wordpiece_vocab(s->pieces) : fgt_tokenizer_vocab(s->tokens);
    s->ids.wide = s->vocab > UINT16_MAX + 1;
    return FGIO_EXIT_OK;
}

static int encode(session *s, const unsigned char *text, size_t len) {
    fgt_wordpiece_cache cache = {0};
    if (s->tokens != NULL)
        return fgt_tokenizer_encode(s->tokens, text, len, &s->ids);
    int bad = fgt_wordpiece_encode(s->pieces, &cache, text, len, &s->ids);
    fgt_wordpiece_cache_free(&cache);
    return bad ? fgio_error("not enough memory for the tokens of %zu bytes", len) : FGIO_EXIT_OK;
}

static int read_text(const fgp_args *args, session *s) {
    const char *file = fgp_arg(args, "file");
    fgio_bytes bytes = {NULL, 0};
    if (args->operand_count > 0 && file != NULL)
        return fgio_usage_error("tokens: TEXT and --file both give a text; give one of them");
    if (args->operand_count > 0)
        return encode(s, (const unsigned char *)args->operand[0], strlen(args->operand[0]));
    int status = fgio_file_read(file != NULL ? file : "-", &bytes);
    if (status == FGIO_EXIT_OK)
        status = encode(s, bytes.data, bytes.len);
    fgio_bytes_free(&bytes);
    return status;
}

/* ---- out -------------------------------------------------------------------------------------------- */

/* A piece so that it can be seen: what is not printable ASCII or a whole character of UTF-8 becomes \xNN. */
static const char *piece_text(const session *s, int32_t id, char *dst, size_t cap) {
    size_t len = 0, used = 0;
    int rest = 0;
    const unsigned char *piece = s->tokens != NULL ? fgt_tokenizer_piece(s->tokens, id, &len)
                                                   : fgt_wordpiece_piece(s->pieces, (uint32_t)id, &len, &rest);
    json_t *valid = len == 0 ? NULL : json_stringn((const char *)piece, len); /* NULL: not UTF-8 */
    dst[0] = '\0';
    if (rest)
        used = (size_t)snprintf(dst, cap, "##");
    for (size_t i = 0; i < len && used + 5 < cap; i++) {
        int plain = piece[i] >= 0x80 ? valid != NULL : piece[i] >= ' ' && piece[i] != 0x7F;
        used += (size_t)snprintf(dst + used, cap - used, plain ? "%c" : "\\x%02X", piece[i]);
    }
    json_decref(valid);
    return dst;
}

static void print_ids(const session *s) {
    for (size_t i = 0; i < s->ids.len; i++)
        printf("%s%" PRId32, i > 0 ? " " : "", fgt_ids_at(&s->ids, i));
    printf("\n");
}

static void print_table(const session *s) {
    char piece[512];
    for (size_t i = 0; i < s->ids.len; i++) {
        int32_t id = fgt_ids_at(&s->ids, i);
        printf("%8" PRId32 "  '%s'\n", id, piece_text(s, id, piece, sizeof piece));
    }
    printf("%zu token%s from a vocabulary of %" PRIu32 "\n", s->ids.len, s->ids.len == 1 ? "" : "s", s->vocab);
}

static int print_json(const session *s, const char *where) {
    json_t *all = json_object(), *ids = json_array(), *pieces = json_array();
    char piece[512];
    for (size_t i = 0; i < s->ids.len; i++) {
        int32_t id = fgt_ids_at(&s->ids, i);
        json_array_append_new(ids, json_integer(id));
        json_array_append_new(pieces, fgio_json_text(piece_text(s, id, piece, sizeof piece)));
    }
    json_object_set_new(all, "tokens", fgio_json_text(where));
    json_object_set_new(all, "vocab", json_integer(s->vocab));
    json_object_set_new(all, "count", json_integer((json_int_t)s->ids.len));
    json_object_set_new(all, "ids", ids);
    json_object_set_new(all, "pieces", pieces);
    return fgio_json_print(all, JSON_COMPACT, stdout);
}

static int run(const fgp_args *args) {
    session s = {0};
    const char *where = fgp_arg(args, "tokens");
    int status = fgp_arg_given(args, "ids") && fgp_arg_given(args, "json")
                     ? fgio_usage_error("tokens: --ids and --json exclude each other; give one of them")
                     : open_tokenizer(where, &s);
    if (status == FGIO_EXIT_OK)
        status = read_text(args, &s);
    if (status == FGIO_EXIT_OK && fgp_arg_given(args, "json"))
        status = print_json(&s, where);
    else if (status == FGIO_EXIT_OK && fgp_arg_given(args, "ids"))
        print_ids(&s);
    else if (status == FGIO_EXIT_OK)
        print_table(&s);
    fgt_ids_free(&s.ids);
    fgt_tokenizer_close(s.tokens);
    fgt_wordpiece_destroy(s.pieces);
    return status;
}

const fgp_command fgp_command_tokens = {
    .name = "tokens",
    .summary = "show the tokens of a text, ids and pieces",
    .operands = "[TEXT]",
    .max_operands = 1,
    .about = "Prints a line for each token: its id and the piece of text it stands for, with \\xNN for bytes that "
             "cannot be\n"
             "shown. Nothing is added: a BERT also gets [CLS] before and [SEP] after every sentence.\n"
             "\n"
             "  frugrad tokens --tokens gpt2/ \"The sea was\"\n"
             "  frugrad tokens --tokens bert/vocab.txt --ids --file book.txt",
    .options = options,
    .run = run,
};
