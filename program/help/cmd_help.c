/* cmd_help.c - `frugrad help` and --help, printed from the command table that the parser uses. */
#include "program/args/commands.h"
#include "frugrad.h"
#include "io/error.h"

#include <stdio.h>

enum { COLUMN = 26, WIDTH = 80 };

static void print_option(const fgp_opt *option) {
    int column = option->letter != 0 ? printf("  -%c, ", option->letter) : printf("      ");
    column += printf("--%s%s%s", option->name, option->arg == NULL ? "" : " ", option->arg == NULL ? "" : option->arg);
    if (column >= COLUMN)
        printf("\n%*s", COLUMN, "");
    else
        printf("%*s", COLUMN - column, "");
    int has_fallback = option->fallback != NULL && option->fallback[0] != '\0';
    fgio_printf_wrapped(COLUMN, WIDTH, "%s%s%s%s", option->help, has_fallback ? " [" : "",
                        has_fallback ? option->fallback : "", has_fallback ? "]" : "");
}

void fgp_help_command(const fgp_command *command) {
    static const fgp_opt help = {"help", 'h', NULL, NULL, "show this help"};
    printf("frugrad %s: %s\n\n", command->name, command->summary);
    printf("Usage: frugrad %s%s%s [options]\n", command->name, command->operands[0] == '\0' ? "" : " ",
           command->operands);
    if (command->about[0] != '\0')
        printf("\n%s\n", command->about);
    printf("\nOptions:\n");
    for (const fgp_opt *option = command->options; option->name != NULL; option++)
        print_option(option);
    print_option(&help);
    if (command->more != NULL)
        command->more();
}

void fgp_help_program(FILE *to) {
    const fgp_command *command;
    fprintf(to, "frugrad %s: send a few percent of a gradient, keep the rest for later\n\n", frug_version());
    fprintf(to, "Usage: frugrad COMMAND [options]\n\nCommands:\n");
    for (size_t i = 0; (command = fgp_command_at(i)) != NULL; i++)
        if (!command->hidden)
            fprintf(to, "  %-12s%s\n", command->name, command->summary);
    fprintf(to, "\n`frugrad COMMAND --help` has the details; `frugrad inspect` shows the CPU and the presets.\n");
}

int fgp_unknown_command(const char *name) {
    const char *names[32];
    size_t count = 0;
    const fgp_command *command;
    for (size_t i = 0; (command = fgp_command_at(i)) != NULL; i++)
        if (!command->hidden)
            names[count++] = command->name;
    names[count] = NULL;
    fgio_usage_error("unknown command '%s'", name);
    const char *nearest = fgio_nearest_word(name, names);
    if (nearest != NULL)
        fgio_hint("did you mean frugrad %s?", nearest);
    else
        fgio_hint("see frugrad --help");
    return FGIO_EXIT_USAGE;
}

static int run_help(const fgp_args *args) {
    if (args->operand_count == 0) {
        fgp_help_program(stdout);
        return FGIO_EXIT_OK;
    }
    const fgp_command *command = fgp_command_find(args->operand[0]);
    if (command == NULL)
        return fgp_unknown_command(args->operand[0]);
    fgp_help_command(command);
    return FGIO_EXIT_OK;
}

static const fgp_opt options[] = {{NULL, 0, NULL, NULL, NULL}};

const fgp_command fgp_command_help = {
    .name = "help",
    .summary = "explain a command",
    .operands = "[COMMAND]",
    .max_operands = 1,
    .about = "",
    .options = options,
    .run = run_help,
};
