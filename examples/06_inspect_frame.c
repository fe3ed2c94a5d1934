/*
 * 06_inspect_frame.c - check a frame and print its sections.
 *
 *   cc 06_inspect_frame.c $(pkg-config --cflags --libs frugrad) -o 06_inspect_frame && ./06_inspect_frame
 */
#include <frugrad.h>

#include <stdio.h>
#include <stdlib.h>

static frug_status add(frug_layout *layout, const char *name, frug_role role, uint64_t rows, uint64_t cols) {
    frug_tensor tensor = FRUG_TENSOR_INIT;
    tensor.name = name;
    tensor.role = role;
    tensor.ndim = cols ? 2 : 1;
    tensor.shape[0] = rows;
    tensor.shape[1] = cols;
    return frug_layout_add(layout, &tensor);
}

static int print(const void *frame, size_t len, const frug_layout *layout) {
    frug_frame_info info = {.struct_size = sizeof info};
    if (frug_frame_check(frame, len, &info))
        return 1;
    printf("step %llu, %llu entries in %zu bytes\n", (unsigned long long)info.step, (unsigned long long)info.entries,
           len);
    for (uint32_t i = 0; i < info.sections; i++) {
        frug_section_info s = {.struct_size = sizeof s};
        frug_tensor tensor = FRUG_TENSOR_INIT;
        if (frug_frame_section(frame, len, i, &s) || frug_layout_get(layout, s.tensor, &tensor))
            return 1;
        printf("  %-16s %8llu of %8llu entries, index %s, value %s\n", tensor.name, (unsigned long long)s.entries,
               (unsigned long long)s.range.count, s.index, s.value);
    }
    return 0;
}

int main(void) {
    frug_config *config = NULL;
    frug_layout *layout = NULL;
    frug_compressor *compressor = NULL;
    size_t room = 0, len = 0;
    int failed = frug_config_create("frugrad", &config) || frug_layout_create(&layout) ||
                 add(layout, "embedding", FRUG_ROLE_EMBEDDING, 1000, 64) ||
                 add(layout, "linear.weight", FRUG_ROLE_LINEAR, 256, 64) ||
                 add(layout, "linear.bias", FRUG_ROLE_BIAS, 256, 0) ||
                 frug_compressor_create(config, layout, NULL, &compressor);
    frug_range all = {0, failed ? 0 : frug_layout_elements(layout)};
    failed = failed || frug_compressor_bound(compressor, all, &room);
    float *grad = malloc((all.count + 1) * sizeof *grad);
    unsigned char *frame = malloc(room + 1);
    failed = failed || !grad || !frame;
    for (uint64_t i = 0; i < all.count && !failed; i++)
        grad[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    failed = failed || frug_compress(compressor, 0, all, grad, frame, room, &len) || print(frame, len, layout);
    if (failed)
        fprintf(stderr, "06_inspect_frame: %s\n", frug_last_error());
    if (!failed) { /* a damaged frame is refused */
        frame[len / 2] ^= 1;
        frug_frame_info info = {.struct_size = sizeof info};
        failed = frug_frame_check(frame, len, &info) != FRUG_ERR_CHECKSUM;
        printf("after one flipped bit: %s\n", frug_last_error());
    }
    free(frame);
    free(grad);
    frug_compressor_destroy(compressor);
    frug_layout_destroy(layout);
    frug_config_destroy(config);
    return failed;
}
