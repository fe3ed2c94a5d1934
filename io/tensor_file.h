/*
 * tensor_file.h - a safetensors file that is read piece by piece, so that it may be larger than memory. Every function
 * that can fail says why on stderr and returns FGIO_EXIT_FAIL.
 */
#ifndef FGIO_TENSOR_FILE_H
#define FGIO_TENSOR_FILE_H

#include "io/safetensors.h"

typedef struct fgio_tensor_file {
    char *path;            /* for messages */
    int fd;                /* -1 when closed */
    uint64_t len;          /* of the file */
    uint64_t data;         /* where the data begins */
    fgio_safetensors head; /* items without data */
} fgio_tensor_file;

#define FGIO_TENSOR_FILE_CLOSED                                                                                        \
    {                                                                                                                  \
        NULL, -1, 0, 0, {                                                                                              \
            NULL, 0, NULL                                                                                              \
        }                                                                                                              \
    }

/** Open a file and read its header. On failure the file is closed. */
int fgio_tensor_file_open(const char *path, fgio_tensor_file *file);
void fgio_tensor_file_close(fgio_tensor_file *file);

/** Read bytes of the file. Those that are not there (the file has shrunk) are an error. */
int fgio_tensor_file_read(const fgio_tensor_file *file, uint64_t place, void *dst, size_t bytes);

/** Read a whole tensor of floats as f32; dst has item->count elements. */
int fgio_tensor_file_floats(const fgio_tensor_file *file, const fgio_item *item, float *dst);

#endif
