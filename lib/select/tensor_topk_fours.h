/*
 * tensor_topk_fours.h - mark_fours() of tensor_topk_kernel.h in vectors of any width; the body of some variants.
 *
 * The including file includes tensor_topk_scan.h and defines
 *   rotate_1(v), rotate_2(v), rotate_3(v)   element i of every four becomes element i + 1, i + 2, i + 3 modulo 4
 */
/* An element is selected if fewer than k others are larger, or equal and before it: adding 1 to those before it makes
 * one comparison of the two. */
static void mark_fours(const float *x, uint32_t words, uint32_t k, uint32_t mask, uint64_t *bits) {
    signed_lanes first, second, third, lane;
    for (uint32_t l = 0; l < WIDTH; l++)
        lane[l] = (int32_t)(l % 4);
    first = -(lane > 2);
    second = -(lane > 1);
    third = -(lane > 0);
    for (uint32_t w = 0; w < words; w++, x += GROUP) {
        MARKS in[VECTORS];
#pragma GCC unroll 16
        for (uint32_t j = 0; j < VECTORS; j++) {
            signed_lanes key = (signed_lanes)(load_magnitudes(x + j * WIDTH) & mask), zero = {0};
            signed_lanes larger =
                zero - (rotate_1(key) + first > key) - (rotate_2(key) + second > key) - (rotate_3(key) + third > key);
            in[j] = less(larger, (int32_t)k);
        }
        bits[w] = pack(in);
    }
}
