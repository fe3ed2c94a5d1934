/* command_table.c - the table of commands, in the order of the help and the man page. */
#include "program/args/commands.h"

#include <string.h>

static const fgp_command *const commands[] = {
    &fgp_command_demo,       &fgp_command_train,  &fgp_command_finetune, &fgp_command_eval,    &fgp_command_serve,
    &fgp_command_join,       &fgp_command_keygen, &fgp_command_sample,   &fgp_command_prune,   &fgp_command_export,
    &fgp_command_tokens,     &fgp_command_data,   &fgp_command_compare,  &fgp_command_bench,   &fgp_command_compress,
    &fgp_command_decompress, &fgp_command_diff,   &fgp_command_patch,    &fgp_command_inspect, &fgp_command_plan,
    &fgp_command_report,     &fgp_command_help,   &fgp_command_man,
};

const fgp_command *fgp_command_at(size_t i) {
    return i < sizeof commands / sizeof *commands ? commands[i] : NULL;
}

const fgp_command *fgp_command_find(const char *name) {
    const fgp_command *command;
    for (size_t i = 0; (command = fgp_command_at(i)) != NULL; i++)
        if (strcmp(command->name, name) == 0)
            return command;
    return NULL;
}
