/* image_files.h - files of small images: idx (MNIST) and CIFAR-10's records. */
#ifndef FGT_IMAGE_FILES_H
#define FGT_IMAGE_FILES_H

#include "io/error.h"

#include <stddef.h>
#include <stdint.h>

/** Contents of an idx file; data points into it. */
typedef struct fgt_idx {
    uint32_t dims;     /* 1: labels, 3: images */
    uint32_t shape[3]; /* the first counts */
    const unsigned char *data;
} fgt_idx;

/** Parses an idx file of bytes with this many dimensions. Returns 0, or -1 and why. */
int fgt_idx_parse(const unsigned char *file, size_t len, uint32_t dims, fgt_idx *idx, fgio_reason *why);

enum { FGT_CIFAR_SIDE = 32, FGT_CIFAR_PIXELS = 3 * 32 * 32, FGT_CIFAR_CLASSES = 10 };

/** Checks a file of CIFAR-10 records, a label and 3 planes of 32 x 32 each. Returns 0 and their number, or -1 and why.
 * */
int fgt_cifar_parse(const unsigned char *file, size_t len, uint64_t *records, fgio_reason *why);

#endif
