/*
 * tensorboard.c - TensorBoard event files, without protobuf or TensorFlow.
 *
 * A file is a sequence of TFRecords (length, masked CRC-32C of it, bytes, masked CRC-32C of them), each with one
 * message Event in protobuf's encoding. Four wire types of protobuf are needed: varint (0), 64 bit (1),
 * length-delimited (2) and 32 bit (5). A record is one write(), and readers drop an incomplete one at the end, so the
 * file is valid at any moment.
 */
#include "io/tensorboard.h"

#include "base/crc32c.h"
#include "io/files.h"
#include "io/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE_MAX = 512, TAG_MAX = 200, RECORD_OVERHEAD = 16 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* Field numbers of tensorflow.Event, Summary, Summary.Value and SessionLog. */
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION_LOG = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

struct fgio_tensorboard {
    char path[PATH_MAX];
    int fd;
};

/* A message under construction; all messages here are far shorter than MESSAGE_MAX. */
typedef struct message {
    unsigned char data[MESSAGE_MAX];
    size_t len;
} message;

static void put_bytes(message *m, const void *bytes, size_t len) {
    if (len <= sizeof m->data - m->len) {
        memcpy(m->data + m->len, bytes, len);
        m->len += len;
    }
}

static void put_varint(message *m, uint64_t number) {
    unsigned char byte;
    do {
        byte = (unsigned char)((number & 0x7f) | (number > 0x7f ? 0x80 : 0));
        put_bytes(m, &byte, 1);
        number >>= 7;
    } while (number > 0);
}

static void put_little_endian(message *m, uint64_t bits, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)(bits >> 8 * i);
        put_bytes(m, &byte, 1);
    }
}

static void put_key(message *m, unsigned field, unsigned wire) {
    put_varint(m, field << 3 | wire);
}

static void put_field(message *m, unsigned field, const void *bytes, size_t len) {
    put_key(m, field, WIRE_BYTES);
    put_varint(m, len);
    put_bytes(m, bytes, len);
}

/* The beginning of every event. */
static message new_event(uint64_t step) {
    message m = {.len = 0};
    struct timespec now = {0, 0};
    uint64_t bits;
    clock_gettime(CLOCK_REALTIME, &now);
    double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    memcpy(&bits, &seconds, sizeof bits);
    put_key(&m, EVENT_WALL_TIME, WIRE_64);
    put_little_endian(&m, bits, 8);
    if (step > 0) { /* a missing field means 0 */
        put_key(&m, EVENT_STEP, WIRE_VARINT);
        put_varint(&m, step);
    }
    return m;
}

static uint32_t masked_crc32c(const void *bytes, size_t len) {
    uint32_t sum = frugi_crc32c(0, bytes, len);
    return (sum >> 15 | sum << 17) + 0xa282ead8u;
}

static int put_record(fgio_tensorboard *events, const message *m) {
    unsigned char record[MESSAGE_MAX + RECORD_OVERHEAD];
    message frame = {.len = 0};
    put_little_endian(&frame, m->len, 8);
    put_little_endian(&frame, masked_crc32c(frame.data, 8), 4);
    memcpy(record, frame.data, frame.len);
    memcpy(record + frame.len, m->data, m->len);
    size_t len = frame.len + m->len;
    frame.len = 0;
    put_little_endian(&frame, masked_crc32c(m->data, m->len), 4);
    memcpy(record + len, frame.data, frame.len);
    len += frame.len;
    off_t before = lseek(events->fd, 0, SEEK_END);
    ssize_t put = write(events->fd, record, len);
    if (put == (ssize_t)len)
        return FGIO_EXIT_OK;
    int cause = put < 0 ? errno : ENOSPC;
    if (put > 0 && (before < 0 || ftruncate(events->fd, before) != 0)) /* half a record would hide all later ones */
        return fgio_error("%s: ends in half a record: %s", events->path, strerror(cause));
    return fgio_error("%s: cannot write: %s", events->path, strerror(cause));
}

static int create_file(const char *directory, fgio_tensorboard *events) {
    char host[64] = "";
    if (gethostname(host, sizeof host - 1) != 0 || *host == '\0' || strchr(host, '/') != NULL)
        strcpy(host, "localhost");
    for (unsigned number = 0; number < 1000; number++) {
        int length = snprintf(events->path, sizeof events->path, "%s/events.out.tfevents.%010lld.%s.%ld.%u", directory,
                              (long long)time(NULL), host, (long)getpid(), number);
        if (length < 0 || (size_t)length >= sizeof events->path)
            return fgio_error("%s: the name is too long", directory);
        events->fd = open(events->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (events->fd >= 0)
            return FGIO_EXIT_OK;
        if (errno != EEXIST)
            break;
    }
    return fgio_error("%s: cannot write: %s", events->path, strerror(errno));
}

/* The first records of a file: the version of the format and, of a resumed run, its first step. */
static int put_file_header(fgio_tensorboard *events, uint64_t step) {
    static const char version[] = "brain.Event:2";
    static const unsigned char start[] = {SESSION_STATUS << 3 | WIRE_VARINT, SESSION_START};
    message m = new_event(0);
    put_field(&m, EVENT_FILE_VERSION, version, sizeof version - 1);
    int code = put_record(events, &m);
    if (code != FGIO_EXIT_OK || step == 0)
        return code;
    m = new_event(step + 1);
    put_field(&m, EVENT_SESSION_LOG, start, sizeof start);
    return put_record(events, &m);
}

int fgio_tensorboard_open(const char *directory, uint64_t step, fgio_tensorboard **events) {
    int code = fgio_directory_make(directory);
    if (code != FGIO_EXIT_OK)
        return code;
    fgio_tensorboard *made = calloc(1, sizeof *made);
    if (made == NULL)
        return fgio_error("%s: out of memory", directory);
    made->fd = -1;
    code = create_file(directory, made);
    if (code == FGIO_EXIT_OK)
        code = put_file_header(made, step);
    if (code == FGIO_EXIT_OK)
        *events = made;
    else
        fgio_tensorboard_close(made);
    return code;
}

int fgio_tensorboard_scalar(fgio_tensorboard *events, const char *tag, uint64_t step, double value) {
    message number = {.len = 0}, summary = {.len = 0}, event = new_event(step);
    float simple = (float)value;
    uint32_t bits;
    memcpy(&bits, &simple, sizeof bits);
    put_field(&number, VALUE_TAG, tag, strnlen(tag, TAG_MAX));
    put_key(&number, VALUE_SIMPLE, WIRE_32);
    put_little_endian(&number, bits, 4);
    put_field(&summary, SUMMARY_VALUE, number.data, number.len);
    put_field(&event, EVENT_SUMMARY, summary.data, summary.len);
    return put_record(events, &event);
}

void fgio_tensorboard_close(fgio_tensorboard *events) {
    if (events == NULL)
        return;
    if (events->fd >= 0)
        close(events->fd);
    free(events);
}
