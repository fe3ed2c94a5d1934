/*
 * tensor_file.h - a safetensors file that is read in chunks, so that it may be larger than memory; or a compact file,
 * which is in memory as it is and is decoded tensor by tensor.
 *
 * Functions that can fail print the error on stderr and return FGIO_EXIT_FAIL.
 */
#ifndef FGIO_TENSOR_FILE_H
#define FGIO_TENSOR_FILE_H

#include "frugrad/sparse.h"
#include "io/safetensors.h"

#include <stdbool.h>

typedef struct fgio_tensor_file {
    char *path;            /* for messages */
    int fd;                /* -1 when closed */
    uint64_t len;          /* of the file */
    uint64_t data;         /* offset of the data */
    fgio_safetensors head; /* items without data */
    bool out_of_memory;    /* why it could not be opened; the file itself may be good */
    fgio_bytes compact;    /* all of a compact file; items are F32, and offset is that of a record */
} fgio_tensor_file;

#define FGIO_TENSOR_FILE_CLOSED                                                                                        \
    {                                                                                                                  \
        NULL, -1, 0, 0, {NULL, 0, NULL}, false, {                                                                      \
            NULL, 0                                                                                                    \
        }                                                                                                              \
    }

/** Open a file and read its header. On failure the file is closed. */
int fgio_tensor_file_open(const char *path, fgio_tensor_file *file);
void fgio_tensor_file_close(fgio_tensor_file *file);

/** Read bytes at an offset of a safetensors file. A file that ends before them (it was truncated) is an error, and so
 * is a compact file. */
int fgio_tensor_file_read(const fgio_tensor_file *file, uint64_t offset, void *dst, size_t bytes);

/** Read a whole tensor of floats as f32; dst has item->count elements. */
int fgio_tensor_file_read_f32(const fgio_tensor_file *file, const fgio_tensor *item, float *dst);

/** The packed matrix of a tensor that a compact file stores sparse or as int8, its rows as the caller's layer has them;
 * *matrix is NULL for other tensors, which are to be read dense. */
int fgio_tensor_file_pack(const fgio_tensor_file *file, const fgio_tensor *item, bool input_first,
                          frug_sparse **matrix);

#endif
