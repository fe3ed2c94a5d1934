/* bit_positions.c - the table of bit_positions.h, worked out by the compiler. */
#include "select/bit_positions.h"

#define BIT(m, b)   (((m) >> (b)) & 1u)
#define COUNT(m)    (BIT(m, 0) + BIT(m, 1) + BIT(m, 2) + BIT(m, 3) + BIT(m, 4) + BIT(m, 5) + BIT(m, 6) + BIT(m, 7))
#define PLACE(m, b) (BIT(m, b) ? (uint64_t)(b) << (8 * COUNT((m) & ((1u << (b)) - 1u))) : 0)
#define PLACES(m)                                                                                                      \
    (PLACE(m, 0) | PLACE(m, 1) | PLACE(m, 2) | PLACE(m, 3) | PLACE(m, 4) | PLACE(m, 5) | PLACE(m, 6) | PLACE(m, 7))
#define FOUR(f, m)      f(m), f(m + 1u), f(m + 2u), f(m + 3u)
#define SIXTEEN(f, m)   FOUR(f, m), FOUR(f, m + 4u), FOUR(f, m + 8u), FOUR(f, m + 12u)
#define SIXTYFOUR(f, m) SIXTEEN(f, m), SIXTEEN(f, m + 16u), SIXTEEN(f, m + 32u), SIXTEEN(f, m + 48u)
#define ALL(f)          SIXTYFOUR(f, 0u), SIXTYFOUR(f, 64u), SIXTYFOUR(f, 128u), SIXTYFOUR(f, 192u)

const uint64_t frugi_bit_places[256] = {ALL(PLACES)};
