/*
 * edit_distance.c - edit distance of two words, for "did you mean" in error messages.
 *
 * Transpositions count as one edit, because swapped letters are the most common typing error. Dynamic programming over
 * all prefixes, O(a_len * b_len).
 */
#include "base/edit_distance.h"

#include <stdint.h>

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t frugi_edit_distance(const char *a, size_t a_len, const char *b, size_t b_len) {
    size_t d[FRUGI_EDIT_WORD_MAX + 1][FRUGI_EDIT_WORD_MAX + 1]; /* d[i][j]: the first i of a, the first j of b */
    if (a_len > FRUGI_EDIT_WORD_MAX || b_len > FRUGI_EDIT_WORD_MAX)
        return SIZE_MAX;
    for (size_t i = 0; i <= a_len; i++)
        d[i][0] = i;
    for (size_t j = 0; j <= b_len; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        for (size_t j = 1; j <= b_len; j++) {
            size_t replaced = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            d[i][j] = min_size(replaced, min_size(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = min_size(d[i][j], d[i - 2][j - 2] + 1);
        }
    }
    return d[a_len][b_len];
}
