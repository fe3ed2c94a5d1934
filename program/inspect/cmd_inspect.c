/*
 * cmd_inspect.c - `frugrad inspect`: the machine, a config string, a payload, or what would be sent of a model.
 *
 * This file has the command, the machine and the config; inspect_file.c shows payloads, inspect_model.c models.
 */
#include "program/inspect/inspect.h"
#include "program/args/commands.h"
#include "frugrad.h"
#include "io/json.h"
#include "program/system/cpu_name.h"
#include "io/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

static int threads_in_use(void) {
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

static int machine_json(const char *cpu, long cpus) {
    json_t *variants = json_array(), *presets = json_object();
    const frug_preset *preset;
    for (size_t i = 0; frug_isa_at(i) != NULL; i++)
        json_array_append_new(variants, json_string(frug_isa_at(i)));
    for (size_t i = 0; (preset = frug_preset_at(i)) != NULL; i++)
        json_object_set_new(presets, preset->name, json_string(preset->text));
    return fgio_json_print(json_pack("{s:s, s:o, s:I, s:o, s:s, s:i, s:o}", "version", frug_version(), "cpu",
                                     fgio_json_text(cpu), "cpus", (json_int_t)cpus, "variants", variants, "variant",
                                     frug_isa(), "threads", threads_in_use(), "presets", presets),
                           JSON_INDENT(2), stdout);
}

static int machine_table(const char *cpu, long cpus) {
    const char *variant, *environment = getenv("OMP_NUM_THREADS");
    const frug_preset *preset;
    printf("frugrad %s\n", frug_version());
    printf("  cpu        %s, %ld online\n  variants  ", cpu, cpus);
    for (size_t i = 0; (variant = frug_isa_at(i)) != NULL; i++)
        printf(" %s%s", variant, strcmp(variant, frug_isa()) == 0 ? " (in use)" : "");
    printf("\n  threads    %d (OMP_NUM_THREADS %s)\n\nPresets\n", threads_in_use(),
           environment == NULL ? "is not set" : environment);
    for (size_t i = 0; (preset = frug_preset_at(i)) != NULL; i++)
        printf("  %-15s%s\n", preset->name, preset->help);
    printf("\n`frugrad inspect --config PRESET` shows all options of one.\n");
    return FGIO_EXIT_OK;
}

int fgp_inspect_machine(int json) {
    char cpu[128];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (frug_isa() == NULL) {
        const char *forced = getenv("FRUG_ISA");
        return fgio_error("FRUG_ISA=%s: no such variant on this CPU", forced == NULL ? "" : forced);
    }
    fgp_cpu_name(cpu, sizeof cpu);
    return (json ? machine_json : machine_table)(cpu, cpus);
}

enum { NAME = 15, HELP = 31, WIDTH = 80 }; /* columns of a config: the longest name is average_every */

static int config_json(const frug_config *config) {
    json_t *list = json_array();
    const frug_option *option;
    for (size_t i = 0; (option = frug_option_at(i)) != NULL; i++) {
        const char *value = frug_config_get(config, option->name);
        if (value != NULL)
            json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:s}", "option", option->name, "value", value,
                                                  "default", option->fallback, "values", option->values, "help",
                                                  option->help));
    }
    return fgio_json_print(json_pack("{s:s, s:o}", "config", frug_config_text(config), "options", list), JSON_INDENT(2),
                           stdout);
}

/* The accepted values, broken after a '|' where they are long. */
static void print_values(const char *values) {
    int column = printf("%*s(", HELP, "");
    while (*values != '\0') {
        size_t length = strcspn(values, "|");
        length += values[length] == '|';
        if (column > HELP + 1 && column + (int)length >= WIDTH)
            column = printf("\n%*s", HELP + 1, "") - 1;
        column += printf("%.*s", (int)length, values);
        values += length;
    }
    puts(")");
}

static int config_table(const frug_config *config) {
    const frug_option *option;
    for (size_t i = 0; (option = frug_option_at(i)) != NULL; i++) {
        const char *value = frug_config_get(config, option->name);
        if (value == NULL)
            continue;
        printf("%-*s%-*s", NAME, option->name, HELP - NAME, value);
        if (strlen(value) >= HELP - NAME) /* a long value gets a line of its own */
            printf("\n%*s", HELP, "");
        fgio_print_wrapped(option->help, HELP, WIDTH);
        print_values(option->values);
    }
    printf("\n%s\n", frug_config_text(config));
    return FGIO_EXIT_OK;
}

int fgp_inspect_config(const char *text, int json) {
    frug_config *config = NULL;
    if (frug_config_create(text, &config) != FRUG_OK)
        return fgio_config_error();
    int code = (json ? config_json : config_table)(config);
    frug_config_destroy(config);
    return code;
}

static int run_inspect(const fgp_args *args) {
    const char *config = fgp_arg(args, "config");
    int json = fgp_arg_given(args, "json");
    int model = fgp_arg_given(args, "model");
    static const char *const of_model[] = {"heads", "step", "steps"};
    if ((config != NULL || model) && args->operand_count > 0)
        return fgio_usage_error("inspect: a file and --%s exclude each other; give one of them",
                                model ? "model" : "config");
    for (size_t i = 0; i < sizeof of_model / sizeof *of_model; i++)
        if (!model && fgp_arg_given(args, of_model[i]))
            return fgio_usage_error("inspect: --%s needs --model", of_model[i]);
    if (model)
        return fgp_inspect_model(args, config == NULL ? "frugrad" : config, json);
    if (config != NULL)
        return fgp_inspect_config(config, json);
    return args->operand_count > 0 ? fgp_inspect_file(args->operand[0], json) : fgp_inspect_machine(json);
}

static const fgp_opt options[] = {
    {"config", 'c', "S", NULL, "show all options of this config string, or use it for --model"},
    {"model", 'm', "NAME", NULL, "show what would be sent of a model: a name, or a file as for compress"},
    {"heads", 0, "H[:KV]", NULL, "attention heads of a model that is a file, and of its keys and values"},
    {"step", 's', "N", "0", "of a model: the optimizer step"},
    {"steps", 0, "TOTAL", NULL, "of a model: the number of steps; without it schedules are at their end"},
    {"json", 0, NULL, NULL, "print JSON"},
    {NULL, 0, NULL, NULL, NULL},
};

const fgp_command fgp_command_inspect = {
    .name = "inspect",
    .summary = "show this machine, a config, a payload, or what is sent of a model",
    .operands = "[FILE]",
    .max_operands = 1,
    .about = "Without arguments: version, CPU, variants, threads and presets. FILE is a file of\n"
             "frugrad compress, or a bare frame; it is checked completely before it is shown.\n"
             "With --model: what --config (or frugrad) would send of each tensor, from a trial step\n"
             "on generated numbers or those of a file, with the bytes of every index code (* marks\n"
             "the one in use; values are with their scales). Models: resnet20,\n"
             "resnet18, resnet50, bert-base, gpt2, gpt2-medium and llama-1b, as published, and all\n"
             "others of frugrad train, as it makes them for builtin data.",
    .options = options,
    .run = run_inspect,
};
