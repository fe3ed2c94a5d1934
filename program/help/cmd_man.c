/*
 * cmd_man.c - `frugrad man`: the man page in man(7) macros, from the command table and from the library's option and
 * preset tables. The build runs it to make the page that is installed.
 */
#include "program/args/commands.h"
#include "frugrad.h"
#include "trainer/model/model.h"

#include <ctype.h>
#include <stdio.h>

/*
 * In roff '.' and ''' at the start of a line begin requests, '\' begins an escape and '-' is a hyphen. Long lists of
 * choices or options may be broken after '|' or ','.
 */
static void print_text(const char *text) {
    int line_start = 1;
    for (; *text != '\0'; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            fputs("\\&", stdout);
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else
            putchar(*text);
        if ((*text == '|' || *text == ',') && text[1] != ' ' && text[1] != '\0')
            fputs("\\:", stdout);
        line_start = *text == '\n';
    }
}

static void print_line(const char *text) {
    print_text(text);
    putchar('\n');
}

static void print_option(const fgp_opt *option) {
    fputs(".TP\n", stdout);
    if (option->letter != 0)
        printf("\\fB\\-%c\\fR, ", option->letter);
    fputs("\\fB\\-\\-", stdout);
    print_text(option->name);
    fputs("\\fR", stdout);
    if (option->arg != NULL) {
        fputs(" \\fI", stdout);
        print_text(option->arg);
        fputs("\\fR", stdout);
    }
    putchar('\n');
    print_text(option->help);
    if (option->fallback != NULL && option->fallback[0] != '\0') {
        fputs(" [", stdout);
        print_text(option->fallback);
        putchar(']');
    }
    putchar('\n');
}

static void print_command(const fgp_command *command) {
    printf(".SS frugrad %s %s\n", command->name, command->operands);
    putchar(toupper((unsigned char)command->summary[0]));
    print_text(command->summary + 1);
    fputs(".\n", stdout);
    if (command->about[0] != '\0') {
        fputs(".PP\n.nf\n", stdout);
        print_line(command->about);
        fputs(".fi\n", stdout);
    }
    for (const fgp_opt *option = command->options; option->name != NULL; option++)
        print_option(option);
}

static void print_config(void) {
    const frug_option *option;
    const frug_preset *preset;
    puts(".SH CONFIG STRINGS\n.na\n.nh\n"
         "\\fB[preset][,option=value]...\\fR \\- for example \\fBfrugrad,value=int8\\fR.\n"
         "Later options win over earlier ones.\n.SS Presets");
    for (size_t i = 0; (preset = frug_preset_at(i)) != NULL; i++) {
        printf(".TP\n\\fB%s\\fR\n", preset->name);
        print_text(preset->help);
        if (preset->text[0] != '\0') {
            fputs("; short for \\fB", stdout);
            print_text(preset->text);
            fputs("\\fR", stdout);
        }
        putchar('\n');
    }
    puts(".SS Options");
    for (size_t i = 0; (option = frug_option_at(i)) != NULL; i++) {
        printf(".TP\n\\fB%s\\fR=\\fI", option->name);
        print_text(option->values);
        puts("\\fR");
        print_text(option->help);
        fputs(" [", stdout);
        print_text(option->fallback);
        puts("]");
    }
}

static void print_kind(const char *name, const char *options, const char *help) {
    printf(".TP\n\\fB%s\\fR", name);
    if (options != NULL && options[0] != '\0') {
        fputs("[:\\fI", stdout);
        print_text(options);
        fputs("\\fR]", stdout);
    }
    putchar('\n');
    print_line(help);
}

static void print_kinds(void) {
    const fgt_model_kind *model;
    const frug_optimizer_kind *optimizer;
    puts(".SH MODELS\n.na\n.nh");
    for (size_t i = 0; (model = fgt_model_kind_at(i)) != NULL; i++)
        print_kind(model->name, model->options, model->help);
    puts(".SH OPTIMIZERS\n.na\n.nh");
    for (size_t i = 0; (optimizer = frug_optimizer_at(i)) != NULL; i++)
        print_kind(optimizer->name, optimizer->options, optimizer->help);
}

static int run_man(const fgp_args *args) {
    const fgp_command *command;
    (void)args;
    printf(".TH FRUGRAD 1 \"\" \"frugrad %s\" \"User Commands\"\n", frug_version());
    puts(".SH NAME\nfrugrad \\- send a few percent of a gradient, keep the rest for later\n"
         ".SH SYNOPSIS\n\\fBfrugrad\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]\n"
         ".br\n\\fBfrugrad\\fR [\\fICOMMAND\\fR] \\fB\\-\\-help\\fR\n.br\n\\fBfrugrad \\-\\-version\\fR\n"
         ".SH COMMANDS");
    for (size_t i = 0; (command = fgp_command_at(i)) != NULL; i++)
        if (!command->hidden)
            print_command(command);
    print_kinds();
    print_config();
    puts(".SH ENVIRONMENT\n.TP\n\\fBFRUG_ISA\\fR\n"
         "Use this instruction-set variant instead of the best one; \\fBfrugrad inspect\\fR lists them.\n"
         ".TP\n\\fBOMP_NUM_THREADS\\fR\nHow many threads to use.\n"
         ".TP\n\\fBFRUGRAD_PROGRESS\\fR\nShow progress of work that takes longer than this many seconds; 2 unless "
         "set. \\fBoff\\fR shows none.\n"
         ".SH EXIT STATUS\n0 if all went well, 1 after a failure, 2 if the command line is wrong or empty, 130 if "
         "training was "
         "interrupted.");
    return FGIO_EXIT_OK;
}

static const fgp_opt options[] = {{NULL, 0, NULL, NULL, NULL}};

const fgp_command fgp_command_man = {
    .name = "man",
    .summary = "print the man page",
    .operands = "",
    .about = "",
    .options = options,
    .hidden = 1,
    .run = run_man,
};
