/*
 * block_select.h - top-k selection within a block.
 *
 * Both selectors select exactly k entries and break ties towards the lower index. `exact` compares whole
 * magnitudes; `hist` compares their upper halves (exponent and 7 bits of fraction), so that two entries closer
 * than 1 % are equal.
 */
#ifndef FRUGI_BLOCK_SELECT_H
#define FRUGI_BLOCK_SELECT_H

#include "config/config.h"

/**
 * The reference: select k of n entries; indices are ascending.
 *
 *   1 <= k <= n <= 4096; a NaN or an infinity counts as largest
 *
 * Cost: 16 n comparisons (hist) or 32 n (exact), whatever the data. Allocates: never.
 */
void frugi_select_ref(const float *acc, uint32_t n, uint32_t k, frugi_selector how, uint16_t *idx);

#endif
