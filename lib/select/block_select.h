/*
 * block_select.h - which entries of a block leave.
 *
 * Both selectors pick exactly k entries and break ties towards the lower index;
 * they differ in how finely they look. `exact` compares whole magnitudes; `hist`
 * compares their upper halves (exponent and 7 bits of fraction), so that two
 * entries closer than 1 % count as equal.
 */
#ifndef FRUGI_BLOCK_SELECT_H
#define FRUGI_BLOCK_SELECT_H

#include "config/config.h"

/**
 * The reference: k of n entries, their indices ascending.
 *
 *   1 <= k <= n <= 4096; a NaN or an infinity counts as largest
 *
 * Cost: 16 n comparisons (hist) or 32 n (exact), whatever the data. Allocates: never.
 */
void frugi_select_ref(const float *acc, uint32_t n, uint32_t k, frugi_selector how, uint16_t *idx);

#endif
