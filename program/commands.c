/* The table of commands: the order here is the order of the help and the man page. */
#include "program/commands.h"

#include <string.h>

static const frugi_command *const commands[] = {
    &frugi_command_demo,     &frugi_command_train,      &frugi_command_finetune, &frugi_command_eval,
    &frugi_command_sample,   &frugi_command_tokens,     &frugi_command_compare,  &frugi_command_bench,
    &frugi_command_compress, &frugi_command_decompress, &frugi_command_inspect,  &frugi_command_plan,
    &frugi_command_report,   &frugi_command_help,       &frugi_command_man,
};

const frugi_command *frugi_command_at(size_t i) {
    return i < sizeof commands / sizeof *commands ? commands[i] : NULL;
}

const frugi_command *frugi_command_find(const char *name) {
    const frugi_command *command;
    for (size_t i = 0; (command = frugi_command_at(i)) != NULL; i++)
        if (strcmp(command->name, name) == 0)
            return command;
    return NULL;
}
