/*
 * 01_compress.c - compress a buffer, decode it again, and see that nothing is lost.
 *
 *   cc 01_compress.c $(pkg-config --cflags --libs frugrad) -o 01_compress && ./01_compress
 */
#include <frugrad.h>

#include <stdio.h>
#include <stdlib.h>

enum { N = 1 << 16 };

int main(void) {
    static float grad[N], sum[N], residual[N];
    frug_config *config = NULL;
    frug_layout *layout = NULL;
    frug_compressor *compressor = NULL;
    frug_range all = {0, N};
    size_t room = 0, len = 0;
    for (int i = 0; i < N; i++)
        grad[i] = (float)rand() / (float)RAND_MAX - 0.5f;

    int failed = frug_config_create("frugrad,residual=f32", &config) || frug_layout_flat(N, &layout) ||
                 frug_compressor_create(config, layout, NULL, &compressor) ||
                 frug_compressor_bound(compressor, all, &room);
    void *frame = malloc(room);
    const void *frames[] = {frame};
    failed = failed || !frame || frug_compress(compressor, 0, all, grad, frame, room, &len) ||
             frug_decode_add(frug_compressor_decoder(compressor), all, frames, &len, 1, 1.0, sum) ||
             frug_compressor_get_residual(compressor, all, residual);
    if (failed) {
        fprintf(stderr, "01_compress: %s\n", frug_last_error());
    } else {
        int lost = 0;
        for (int i = 0; i < N; i++)
            lost += sum[i] + residual[i] != grad[i];
        printf("%d floats in %zu bytes (%.1f %% of dense); sent + residual differs from the gradient in %d entries\n",
               N, len, 100.0 * (double)len / sizeof grad, lost);
        failed = lost != 0;
    }
    free(frame);
    frug_compressor_destroy(compressor);
    frug_layout_destroy(layout);
    frug_config_destroy(config);
    return failed;
}
