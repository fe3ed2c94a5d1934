/* keyed_random.c - normal numbers by the Box-Muller transform, from the two halves of one 64-bit word. */
#include "trainer/base/keyed_random.h"

#include <math.h>

float fgt_normal(uint64_t bits) {
    const double two_pi = 6.283185307179586;
    double u = ((double)(bits >> 32) + 0.5) * 0x1p-32, v = (double)(bits & 0xFFFFFFFFu) * 0x1p-32;
    return (float)(sqrt(-2.0 * log(u)) * cos(two_pi * v));
}
