/*
 * files.h - reading and writing whole files.
 *
 * Functions that can fail print the error on stderr and return FGIO_EXIT_FAIL; "-" is standard input or output.
 */
#ifndef FGIO_FILES_H
#define FGIO_FILES_H

#include <stddef.h>

/** A heap buffer; free with fgio_bytes_free(). */
typedef struct fgio_bytes {
    unsigned char *data;
    size_t len;
} fgio_bytes;

void fgio_bytes_free(fgio_bytes *bytes);

/** Install signal handlers: failing writes return errors instead of killing the program, interrupts remove temporary
 * files. Call once, first. */
void fgio_files_init(void);

/** The name of an input in messages: its path, or "standard input". */
const char *fgio_input_name(const char *path);

/** Read a whole file. */
int fgio_file_read(const char *path, fgio_bytes *bytes);

/** Whether the path names an existing regular file, which writing would replace. */
int fgio_file_exists(const char *path);

/** Whether two paths name one existing file. */
int fgio_file_same(const char *a, const char *b);

/**
 * Atomic file writing: the bytes go to a temporary file in the same directory, which fgio_writer_commit() renames.
 * Pipes and devices are written directly, as they cannot be renamed over.
 */
typedef struct fgio_writer {
    char *path;      /* as given, for messages */
    char *target;    /* final name of the temporary file; NULL if written directly */
    const char *tmp; /* path of the temporary file; NULL if there is none */
    int fd;          /* -1 when closed */
} fgio_writer;

#define FGIO_WRITER_CLOSED                                                                                             \
    { NULL, NULL, NULL, -1 }

/** Open a file for writing. On failure the writer is closed. */
int fgio_writer_open(const char *path, fgio_writer *writer);

int fgio_writer_put(fgio_writer *writer, const void *data, size_t len);

/** Write floats as little-endian f32. */
int fgio_writer_put_f32(fgio_writer *writer, const float *data, size_t count);

/** fsync() the temporary file, so that only the rename remains. Optional before fgio_writer_commit(). */
int fgio_writer_sync(fgio_writer *writer);

/** Sync and rename the file, and sync its directory. Closes the writer, also on failure. */
int fgio_writer_commit(fgio_writer *writer);

/** Remove the temporary file and close the writer, if it is still open. */
void fgio_writer_abort(fgio_writer *writer);

/** Write a whole file atomically. */
int fgio_file_write(const char *path, const void *data, size_t len);

/** Create a directory and its parents, where they do not exist. */
int fgio_directory_make(const char *path);

/** Lock an open file or directory against other processes, until it is closed or the process ends. Waits two seconds: a
 * process that was killed may need a moment. Returns 0, or -1 with errno: EWOULDBLOCK if another process has the lock.
 */
int fgio_lock(int fd);

/** Remove temporary files of killed processes from a directory; those in use stay. */
void fgio_directory_clean(const char *path);

#endif
