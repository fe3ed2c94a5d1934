/* fuzz_cifar.c - any bytes as a file of CIFAR-10 records. What is accepted has whole records with labels below ten. */
#include "trainer/data/image_files.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fgio_reason why = {""};
    uint64_t records = 0;
    if (fgt_cifar_parse(data, size, &records, &why) == 0) {
        if (records == 0 || records * (FGT_CIFAR_PIXELS + 1) != size)
            abort();
        for (uint64_t i = 0; i < records; i++)
            if (data[i * (FGT_CIFAR_PIXELS + 1)] >= FGT_CIFAR_CLASSES)
                abort();
    } else if (why.text[0] == '\0') {
        abort();
    }
    return 0;
}
