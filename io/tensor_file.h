/*
 * tensor_file.h - a safetensors file that is read in chunks, so that it may be larger than memory.
 *
 * Functions that can fail print the error on stderr and return FGIO_EXIT_FAIL.
 */
#ifndef FGIO_TENSOR_FILE_H
#define FGIO_TENSOR_FILE_H

#include "io/safetensors.h"

#include <stdbool.h>

typedef struct fgio_tensor_file {
    char *path;            /* for messages */
    int fd;                /* -1 when closed */
    uint64_t len;          /* of the file */
    uint64_t data;         /* offset of the data */
    fgio_safetensors head; /* items without data */
    bool out_of_memory;    /* why it could not be opened; the file itself may be good */
} fgio_tensor_file;

#define FGIO_TENSOR_FILE_CLOSED                                                                                        \
    { NULL, -1, 0, 0, {NULL, 0, NULL}, false }

/** Open a file and read its header. On failure the file is closed. */
int fgio_tensor_file_open(const char *path, fgio_tensor_file *file);
void fgio_tensor_file_close(fgio_tensor_file *file);

/** Read bytes at an offset of the file. A file that ends before them (it was truncated) is an error. */
int fgio_tensor_file_read(const fgio_tensor_file *file, uint64_t offset, void *dst, size_t bytes);

/** Read a whole tensor of floats as f32; dst has item->count elements. */
int fgio_tensor_file_read_f32(const fgio_tensor_file *file, const fgio_tensor *item, float *dst);

#endif
