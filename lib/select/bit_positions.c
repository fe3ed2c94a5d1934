/* bit_positions.c - the table of bit_positions.h, computed by the preprocessor. */
#include "select/bit_positions.h"

#define BIT(m, b)      (((m) >> (b)) & 1u)
#define COUNT(m)       (BIT(m, 0) + BIT(m, 1) + BIT(m, 2) + BIT(m, 3) + BIT(m, 4) + BIT(m, 5) + BIT(m, 6) + BIT(m, 7))
#define POSITION(m, b) (BIT(m, b) ? (uint64_t)(b) << (8 * COUNT((m) & ((1u << (b)) - 1u))) : 0)
#define POSITIONS(m)                                                                                                   \
    (POSITION(m, 0) | POSITION(m, 1) | POSITION(m, 2) | POSITION(m, 3) | POSITION(m, 4) | POSITION(m, 5) |             \
     POSITION(m, 6) | POSITION(m, 7))
#define FOUR(f, m)      f(m), f(m + 1u), f(m + 2u), f(m + 3u)
#define SIXTEEN(f, m)   FOUR(f, m), FOUR(f, m + 4u), FOUR(f, m + 8u), FOUR(f, m + 12u)
#define SIXTYFOUR(f, m) SIXTEEN(f, m), SIXTEEN(f, m + 16u), SIXTEEN(f, m + 32u), SIXTEEN(f, m + 48u)
#define ALL(f)          SIXTYFOUR(f, 0u), SIXTYFOUR(f, 64u), SIXTYFOUR(f, 128u), SIXTYFOUR(f, 192u)

const uint64_t frugi_bit_positions[256] = {ALL(POSITIONS)};
