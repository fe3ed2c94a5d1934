/* fuzz_idx.c - any bytes as an idx file of images and of labels. What is accepted must fill the file to its end. */
#include "trainer/data/image_files.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint32_t dims[] = {1, 3};
    for (int i = 0; i < 2; i++) {
        fgio_reason why = {""};
        fgt_idx idx;
        if (fgt_idx_parse(data, size, dims[i], &idx, &why) == 0) {
            size_t count = (size_t)idx.shape[0] * idx.shape[1] * idx.shape[2];
            if (idx.data < data || idx.data + count != data + size)
                abort();
        } else if (why.text[0] == '\0') {
            abort();
        }
    }
    return 0;
}
