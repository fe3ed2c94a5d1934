/* round_book.c - records of clients in the order of their keys, and the rules of a round. */
#include "federated/round_book.h"

#include <stdlib.h>
#include <string.h>

void fgf_book_free(fgf_book *book) {
    free(book->client);
    *book = (fgf_book){0};
}

/* The position of a key, or where it would be. */
static size_t position_of(const fgf_book *book, const fgf_public_key *key) {
    size_t low = 0, high = book->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (memcmp(book->client[middle].key.bytes, key->bytes, FGF_PUBLIC_BYTES) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

fgf_client_record *fgf_book_find(const fgf_book *book, const fgf_public_key *key) {
    size_t at = position_of(book, key);
    return at < book->count && fgf_public_equal(&book->client[at].key, key) ? &book->client[at] : NULL;
}

fgf_client_record *fgf_book_add(fgf_book *book, const fgf_public_key *key) {
    fgf_client_record *found = fgf_book_find(book, key);
    if (found)
        return found;
    if (book->count == book->capacity) {
        size_t capacity = 2 * book->capacity + 16;
        fgf_client_record *grown = realloc(book->client, capacity * sizeof *grown);
        if (!grown)
            return NULL;
        book->client = grown;
        book->capacity = capacity;
    }
    size_t at = position_of(book, key);
    found = &book->client[at];
    memmove(found + 1, found, (book->count - at) * sizeof *found);
    *found = (fgf_client_record){.key = *key, .base = FGF_NO_VERSION};
    book->count++;
    return found;
}

int fgf_book_copy(const fgf_book *from, fgf_book *to) {
    fgf_client_record *copy = malloc((from->count + 1) * sizeof *copy);
    if (!copy)
        return -1;
    if (from->count)
        memcpy(copy, from->client, from->count * sizeof *copy);
    *to = (fgf_book){copy, from->count, from->count + 1};
    return 0;
}

fgf_verdict fgf_round_judge(const fgf_round_rule *rule, const fgf_client_record *client, uint64_t round, uint64_t base,
                            uint64_t upload) {
    if (client->base != FGF_NO_VERSION && base <= client->base)
        return base == client->base && upload == client->upload ? FGF_VERDICT_CONFIRMED : FGF_VERDICT_DOUBLE;
    if (base > round)
        return FGF_VERDICT_FUTURE;
    return round >= rule->rounds || round - base > rule->stale_max ? FGF_VERDICT_STALE : FGF_VERDICT_ACCEPT;
}

bool fgf_round_closes(const fgf_round_rule *rule, size_t allowed, size_t updates, double seconds_open) {
    if (updates == 0)
        return false;
    uint64_t quorum = rule->quorum ? rule->quorum : (allowed + 1) / 2;
    return updates >= allowed || (updates >= quorum && seconds_open >= rule->deadline);
}
