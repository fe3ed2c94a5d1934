/*
 * tensor_file.h - a safetensors file that is read piece by piece, so that it may be larger than memory. Every function
 * that can fail says why on stderr and returns FRUGI_EXIT_FAIL.
 */
#ifndef FRUGI_TENSOR_FILE_H
#define FRUGI_TENSOR_FILE_H

#include "io/safetensors.h"

typedef struct frugi_tensor_file {
    char *path;             /* for messages */
    int fd;                 /* -1 when closed */
    uint64_t len;           /* of the file */
    uint64_t data;          /* where the data begins */
    frugi_safetensors head; /* items without data */
} frugi_tensor_file;

#define FRUGI_TENSOR_FILE_CLOSED                                                                                       \
    {                                                                                                                  \
        NULL, -1, 0, 0, {                                                                                              \
            NULL, 0, NULL                                                                                              \
        }                                                                                                              \
    }

/** Open a file and read its header. On failure the file is closed. */
int frugi_tensor_file_open(const char *path, frugi_tensor_file *file);
void frugi_tensor_file_close(frugi_tensor_file *file);

/** Read bytes of the file. Those that are not there (the file has shrunk) are an error. */
int frugi_tensor_file_read(const frugi_tensor_file *file, uint64_t place, void *dst, size_t bytes);

/** Read a whole tensor of floats as f32; dst has item->count elements. */
int frugi_tensor_file_floats(const frugi_tensor_file *file, const frugi_item *item, float *dst);

#endif
