/* edit_distance.h - edit distance of two words. */
#ifndef FRUGI_EDIT_DISTANCE_H
#define FRUGI_EDIT_DISTANCE_H

#include <stddef.h>

/** Longer words have no distance: frugi_edit_distance() returns SIZE_MAX. */
enum { FRUGI_EDIT_WORD_MAX = 40 };

/**
 * Edit distance with transpositions (optimal string alignment): inserting, deleting, replacing a character and swapping
 * two adjacent ones cost 1 each.
 *
 * Returns SIZE_MAX if a word is longer than FRUGI_EDIT_WORD_MAX.
 */
size_t frugi_edit_distance(const char *a, size_t a_len, const char *b, size_t b_len);

#endif
