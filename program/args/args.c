/*
 * args.c - the command line parser: one pass over argv with the command's option table.
 *
 * getopt_long is not used because it prints its own errors, needs a second table and cannot suggest the nearest option.
 */
#include "program/args/args.h"
#include "io/error.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int fgp_args_row(const fgp_command *command, const char *name, size_t length) {
    const fgp_opt *options = command->options;
    for (int i = 0; options[i].name != NULL; i++)
        if (strlen(options[i].name) == length && memcmp(options[i].name, name, length) == 0)
            return i;
    return -1;
}

static int find_letter(const fgp_opt *options, char letter) {
    for (int i = 0; options[i].name != NULL; i++)
        if (options[i].letter == letter)
            return i;
    return -1;
}

const char *fgp_args_nearest(const fgp_command *command, const char *word) {
    const char *names[FGP_MAX_OPTIONS + 2];
    size_t count = 0;
    for (; command->options[count].name != NULL; count++)
        names[count] = command->options[count].name;
    names[count++] = "help";
    names[count] = NULL;
    return fgio_nearest_word(word, names);
}

/* Names of these options in other programs. */
static const char *alias_of(const fgp_command *command, const char *word) {
    static const char *const names[][2] = {
        {"lr", "rate"},    {"learning-rate", "rate"},  {"density", "method"},   {"sparsity", "method"},
        {"np", "workers"}, {"num-workers", "workers"}, {"tokenizer", "tokens"}, {"checkpoint", "resume"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], word) == 0 && fgp_args_row(command, names[i][1], strlen(names[i][1])) >= 0)
            return names[i][1];
    return NULL;
}

static int unknown_option(const fgp_command *command, const char *word, size_t length) {
    char given[64];
    fgio_usage_error("%s: unknown option '%.*s'", command->name, (int)length, word);
    while (length > 0 && *word == '-') {
        word++;
        length--;
    }
    if (length >= sizeof given)
        length = sizeof given - 1;
    memcpy(given, word, length);
    given[length] = '\0';
    const char *nearest = alias_of(command, given);
    if (nearest == NULL)
        nearest = fgp_args_nearest(command, given);
    if (nearest != NULL)
        fgio_hint("did you mean --%s?", nearest);
    else
        fgio_hint("see frugrad %s --help", command->name);
    return FGIO_EXIT_USAGE;
}

/* An option without its value would take the next option as its value. A single "-" may be one: "-1", or "-" for stdin.
 */
static int missing_value(const fgp_command *command, const fgp_opt *option, const char *next) {
    fgio_usage_error("%s: --%s needs a value (%s)", command->name, option->name, option->arg);
    if (next != NULL)
        fgio_hint("a value that begins with -- is written --%s=%s", option->name, next);
    return FGIO_EXIT_USAGE;
}

/* Parse the option at argv[*at]; *at advances to its last argument. */
static int parse_option(const fgp_command *command, int argc, char **argv, int *at, fgp_args *args) {
    const char *word = argv[*at];
    const char *value = NULL;
    int row;
    if (word[1] == '-') {
        size_t length = strcspn(word + 2, "=");
        row = fgp_args_row(command, word + 2, length);
        if (row < 0)
            return unknown_option(command, word, length + 2);
        if (word[2 + length] == '=')
            value = word + 2 + length + 1;
    } else {
        row = find_letter(command->options, word[1]);
        if (row < 0)
            return unknown_option(command, word, 2);
        if (word[2] != '\0')
            value = word + 2;
    }
    const fgp_opt *option = &command->options[row];
    if (option->arg == NULL && value != NULL)
        return fgio_usage_error("%s: --%s takes no value ('%s')", command->name, option->name, word);
    if (option->arg != NULL && value == NULL && option->arg[0] == '[') {
        value = *at + 1 < argc && argv[*at + 1][0] != '-' ? argv[++*at] : "";
    } else if (option->arg != NULL && value == NULL) {
        const char *next = *at + 1 < argc ? argv[*at + 1] : NULL;
        if (next == NULL || strncmp(next, "--", 2) == 0)
            return missing_value(command, option, next);
        value = argv[++*at];
    }
    args->value[row] = value;
    args->given[row]++;
    return FGIO_EXIT_OK;
}

static int check_operands(const fgp_command *command, const fgp_args *args) {
    if (args->operand_count < command->min_operands) {
        fgio_usage_error("%s: %s missing", command->name, command->operands);
    } else if (args->operand_count > command->max_operands) {
        const char *extra = args->operand[command->max_operands];
        fgio_usage_error("%s: unexpected argument '%s'", command->name, extra);
        if (command->max_operands == 0 && fgp_args_row(command, "model", strlen("model")) >= 0 && extra[0] != '\0')
            fgio_hint("options have names, as in --model %s", extra);
    } else {
        return FGIO_EXIT_OK;
    }
    fgio_hint("see frugrad %s --help", command->name);
    return FGIO_EXIT_USAGE;
}

static int asks_for_help(int argc, char **argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return 1;
    return 0;
}

int fgp_args_parse(const fgp_command *command, int argc, char **argv, fgp_args *args, int *want_help) {
    int only_operands = 0;
    *args = (fgp_args){.command = command, .operand = (const char *const *)argv};
    *want_help = asks_for_help(argc, argv);
    if (*want_help)
        return FGIO_EXIT_OK;
    for (int i = 0; i < argc; i++) {
        if (!only_operands && strcmp(argv[i], "--") == 0) {
            only_operands = 1;
        } else if (!only_operands && argv[i][0] == '-' && argv[i][1] != '\0') {
            int code = parse_option(command, argc, argv, &i, args);
            if (code != FGIO_EXIT_OK)
                return code;
        } else {
            argv[args->operand_count++] = argv[i];
        }
    }
    return check_operands(command, args);
}

static int require_row(const fgp_args *args, const char *name) {
    int row = fgp_args_row(args->command, name, strlen(name));
    assert(row >= 0 && row < FGP_MAX_OPTIONS);
    return row;
}

const char *fgp_arg(const fgp_args *args, const char *name) {
    int row = require_row(args, name);
    return args->value[row] != NULL ? args->value[row] : args->command->options[row].fallback;
}

int fgp_arg_given(const fgp_args *args, const char *name) {
    return args->given[require_row(args, name)] != 0;
}

int fgp_arg_u64(const fgp_args *args, const char *name, uint64_t min, uint64_t max, uint64_t *number) {
    const char *text = fgp_arg(args, name);
    char *end = NULL;
    errno = 0;
    unsigned long long parsed = 0;
    int good = text != NULL && *text >= '0' && *text <= '9'; /* strtoull would accept "-1" as a huge number */
    if (good) {
        parsed = strtoull(text, &end, 10);
        good = errno == 0 && *end == '\0' && parsed >= min && parsed <= max;
    }
    if (!good)
        return fgio_usage_error("%s: --%s: '%s' is not a whole number from %" PRIu64 " to %" PRIu64,
                                args->command->name, name, text == NULL ? "" : text, min, max);
    *number = parsed;
    return FGIO_EXIT_OK;
}

int fgp_arg_double(const fgp_args *args, const char *name, double min, double max, double *number) {
    const char *text = fgp_arg(args, name);
    char *end = NULL;
    double parsed = text == NULL ? 0 : strtod(text, &end);
    if (text == NULL || end == text || *end != '\0' || !isfinite(parsed) || parsed < min || parsed > max)
        return fgio_usage_error("%s: --%s: '%s' is not a number from %g to %g", args->command->name, name,
                                text == NULL ? "" : text, min, max);
    *number = parsed;
    return FGIO_EXIT_OK;
}

int fgp_arg_word(const fgp_args *args, const char *name, const char *const *words, int *which) {
    const char *text = fgp_arg(args, name);
    for (int i = 0; text != NULL && words[i] != NULL; i++) {
        if (strcmp(words[i], text) == 0) {
            *which = i;
            return FGIO_EXIT_OK;
        }
    }
    fgio_usage_error("%s: --%s: unknown value '%s'", args->command->name, name, text == NULL ? "" : text);
    fgio_hint_choices(text == NULL ? "" : text, words);
    return FGIO_EXIT_USAGE;
}
