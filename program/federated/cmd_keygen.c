/* cmd_keygen.c - `frugrad keygen`: a key for a client or a server of a federated run. */
#include "federated/identity_key.h"
#include "program/args/commands.h"

#include <stdio.h>
#include <string.h>

static const fgp_opt options[] = {
    {"name", 0, "WORD", NULL, "name in lists and logs [the file's name]"},
    {NULL, 0, NULL, NULL, NULL},
};

static int run(const fgp_args *args) {
    const char *path = args->operand[0], *slash = strrchr(path, '/');
    const char *name = fgp_arg(args, "name") ? fgp_arg(args, "name") : slash ? slash + 1 : path;
    char text[FGF_PUBLIC_TEXT];
    fgio_reason why;
    fgf_key *key = fgf_key_generate();
    if (!key)
        return fgio_error("a key cannot be generated");
    fgf_public_key public = fgf_key_public(key);
    int status = fgf_key_write(key, path, name, &why);
    fgf_key_destroy(key);
    if (status != 0)
        return fgio_error("keygen: %s", why.text);
    printf("%s %s\n", fgf_public_text(&public, text), name);
    return FGIO_EXIT_OK;
}

const fgp_command fgp_command_keygen = {
    .name = "keygen",
    .summary = "make a key for a client or a server of a federated run",
    .operands = "FILE",
    .min_operands = 1,
    .max_operands = 1,
    .about =
        "Writes a private Ed25519 key to FILE, which only you can read and nobody else should get, and the public\n"
        "key to FILE.pub. Prints the line of FILE.pub: it goes into the server's list of clients, or, as the\n"
        "server's, to the clients.\n"
        "\n"
        "  frugrad keygen alice\n"
        "  cat alice.pub >> clients.txt",
    .options = options,
    .run = run,
};
