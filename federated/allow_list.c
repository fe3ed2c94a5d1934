/* allow_list.c - the list of clients that are allowed: one public key and a name on a line. */
#include "federated/identity_key.h"

#include "io/files.h"

#include <stdlib.h>
#include <string.h>

static int compare_clients(const void *a, const void *b) {
    return memcmp(((const fgf_allowed *)a)->key.bytes, ((const fgf_allowed *)b)->key.bytes, FGF_PUBLIC_BYTES);
}

static int parse_line(const char *line, size_t number, fgf_allow_list *list, fgio_reason *why) {
    fgf_allowed *one = &list->client[list->count];
    fgio_reason detail;
    char name[FGF_NAME_MAX];
    size_t at = strspn(line, " \t\r");
    if (line[at] == '\0' || line[at] == '#')
        return 0;
    if (fgf_public_parse(line + at, &one->key, &detail) != 0)
        return fgio_fail(why, "line %zu: %s", number, detail.text);
    at += strcspn(line + at, " \t\r#");
    at += strspn(line + at, " \t\r");
    size_t length = strcspn(line + at, " \t\r#");
    if (length >= FGF_NAME_MAX)
        return fgio_fail(why, "line %zu: the name is longer than %d characters", number, FGF_NAME_MAX - 1);
    memcpy(name, line + at, length);
    name[length] = '\0';
    fgio_printable(name, one->name, sizeof one->name);
    list->count++;
    return 0;
}

static int check_unique(const fgf_allow_list *list, fgio_reason *why) {
    char text[FGF_PUBLIC_TEXT];
    for (size_t i = 1; i < list->count; i++)
        if (fgf_public_equal(&list->client[i - 1].key, &list->client[i].key))
            return fgio_fail(why, "%s is listed twice", fgf_public_text(&list->client[i].key, text));
    return 0;
}

int fgf_allow_list_parse(const char *text, size_t len, fgf_allow_list *out, fgio_reason *why) {
    char *copy = malloc(len + 1);
    size_t lines = 1, number = 0;
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    fgf_allow_list list = {.client = lines <= FGF_ALLOWED_MAX ? calloc(lines, sizeof *list.client) : NULL};
    int status = copy && list.client ? 0 : fgio_fail(why, "more than %u lines, or not enough memory", FGF_ALLOWED_MAX);
    if (status == 0) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    for (char *line = copy, *end; status == 0 && line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        status = parse_line(line, ++number, &list, why);
    }
    if (status == 0) {
        qsort(list.client, list.count, sizeof *list.client, compare_clients);
        status = check_unique(&list, why);
    }
    free(copy);
    if (status == 0)
        *out = list;
    else
        fgf_allow_list_free(&list);
    return status;
}

int fgf_allow_list_read(const char *path, fgf_allow_list *list, fgio_reason *why) {
    fgio_bytes bytes = {0};
    fgio_reason detail;
    fgio_errors_mute(1);
    int status = fgio_file_read(path, &bytes);
    fgio_errors_mute(0);
    if (status != FGIO_EXIT_OK)
        return fgio_fail(why, "%s: cannot be read; it lists the public keys of clients, a line of a .pub file each",
                         path);
    status = fgf_allow_list_parse((const char *)bytes.data, bytes.len, list, &detail);
    fgio_bytes_free(&bytes);
    return status == 0 ? 0 : fgio_fail(why, "%s: %s", path, detail.text);
}

void fgf_allow_list_free(fgf_allow_list *list) {
    free(list->client);
    *list = (fgf_allow_list){0};
}

const fgf_allowed *fgf_allow_list_find(const fgf_allow_list *list, const fgf_public_key *key) {
    fgf_allowed wanted = {.key = *key};
    return list->count ? bsearch(&wanted, list->client, list->count, sizeof wanted, compare_clients) : NULL;
}
