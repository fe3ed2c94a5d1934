/*
 * files.h - whole files in and out. Every function that can fail says why on
 * stderr and returns FGIO_EXIT_FAIL; "-" is standard input or output.
 */
#ifndef FGIO_FILES_H
#define FGIO_FILES_H

#include <stddef.h>

/** Bytes owned by whoever holds them. */
typedef struct fgio_bytes {
    unsigned char *data;
    size_t len;
} fgio_bytes;

void fgio_bytes_free(fgio_bytes *bytes);

/** Make failing writes return errors instead of killing the program, and interrupts remove temporary files. Once,
 * first. */
void fgio_files_start(void);

/** What to call an input in messages: its path, or "standard input". */
const char *fgio_input_name(const char *path);

/** Read a whole file. */
int fgio_file_read(const char *path, fgio_bytes *bytes);

/** Whether the path names a plain file, which writing would replace. */
int fgio_file_exists(const char *path);

/** Whether two paths name one existing file. */
int fgio_file_same(const char *a, const char *b);

/**
 * A file that appears whole or not at all: the bytes go to a temporary file in
 * the same directory, which fgio_writer_commit() renames. Pipes and devices
 * are written straight away, as they cannot be renamed over.
 */
typedef struct fgio_writer {
    char *path;      /* as given, for messages */
    char *target;    /* what the temporary file will be renamed to; NULL when written directly */
    const char *tmp; /* the temporary file, NULL when there is none */
    int fd;          /* -1 when closed */
} fgio_writer;

#define FGIO_WRITER_CLOSED                                                                                             \
    { NULL, NULL, NULL, -1 }

/** Start a file. On failure the writer is closed. */
int fgio_writer_open(const char *path, fgio_writer *writer);

int fgio_writer_put(fgio_writer *writer, const void *data, size_t len);

/** Write floats as little-endian f32. */
int fgio_writer_put_f32(fgio_writer *writer, const float *data, size_t count);

/** See that all bytes are on the disk, so that only the rename is left. Optional before fgio_writer_commit(). */
int fgio_writer_sync(fgio_writer *writer);

/** Make the file appear, and see that its name is on the disk too. Closes the writer, also on failure. */
int fgio_writer_commit(fgio_writer *writer);

/** Drop the file, if the writer is still open. */
void fgio_writer_abort(fgio_writer *writer);

/** Write a whole file, as a writer does. */
int fgio_file_write(const char *path, const void *data, size_t len);

/** Make a directory and those above it, where they are not there yet. */
int fgio_folder_make(const char *path);

/** Remove the temporary files that writers which were killed have left in a directory; those in use stay. */
void fgio_folder_clean(const char *path);

#endif
