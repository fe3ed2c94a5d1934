/*
 * TensorBoard event files, written by hand: records of TFRecord (length, masked CRC-32C of it, bytes, masked CRC-32C of
 * them), each with one message Event in protobuf's encoding. Of protobuf three wire types are needed: varint (0), eight
 * bytes (1) and four bytes (5), and bytes with a length (2). A record is one write(), and a reader drops a torn one at
 * the end, so the file is sound at any moment.
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

enum { MESSAGE_MAX = 512, TAG_MAX = 200, FRAME_BYTES = 16 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* Field numbers of tensorflow.Event, Summary, Summary.Value and SessionLog. */
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION_LOG = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

struct fgio_events {
    char path[PATH_MAX];
    int fd;
};

/* A message that grows; all of ours are far shorter than its room. */
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

static void put_low_first(message *m, uint64_t bits, unsigned bytes) {
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
    put_low_first(&m, bits, 8);
    if (step > 0) { /* 0 is what a field that is not there means */
        put_key(&m, EVENT_STEP, WIRE_VARINT);
        put_varint(&m, step);
    }
    return m;
}

static uint32_t masked_sum(const void *bytes, size_t len) {
    uint32_t sum = frugi_crc32c(0, bytes, len);
    return (sum >> 15 | sum << 17) + 0xa282ead8u;
}

static int put_record(fgio_events *events, const message *m) {
    unsigned char record[MESSAGE_MAX + FRAME_BYTES];
    message frame = {.len = 0};
    put_low_first(&frame, m->len, 8);
    put_low_first(&frame, masked_sum(frame.data, 8), 4);
    memcpy(record, frame.data, frame.len);
    memcpy(record + frame.len, m->data, m->len);
    size_t len = frame.len + m->len;
    frame.len = 0;
    put_low_first(&frame, masked_sum(m->data, m->len), 4);
    memcpy(record + len, frame.data, frame.len);
    len += frame.len;
    off_t before = lseek(events->fd, 0, SEEK_END);
    ssize_t put = write(events->fd, record, len);
    if (put == (ssize_t)len)
        return FGIO_EXIT_OK;
    int cause = put < 0 ? errno : ENOSPC;
    if (put > 0 && (before < 0 || ftruncate(events->fd, before) != 0)) /* half a record would hide all that follow */
        return fgio_error("%s: ends in half a record: %s", events->path, strerror(cause));
    return fgio_error("%s: cannot write: %s", events->path, strerror(cause));
}

static int open_new(const char *directory, fgio_events *events) {
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

/* What every file begins with: the version of the format, and from which step on it counts. */
static int put_opening(fgio_events *events, uint64_t step) {
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

int fgio_events_open(const char *directory, uint64_t step, fgio_events **events) {
    int code = fgio_folder_make(directory);
    if (code != FGIO_EXIT_OK)
        return code;
    fgio_events *made = calloc(1, sizeof *made);
    if (made == NULL)
        return fgio_error("%s: out of memory", directory);
    made->fd = -1;
    code = open_new(directory, made);
    if (code == FGIO_EXIT_OK)
        code = put_opening(made, step);
    if (code == FGIO_EXIT_OK)
        *events = made;
    else
        fgio_events_close(made);
    return code;
}

int fgio_events_scalar(fgio_events *events, const char *tag, uint64_t step, double value) {
    message number = {.len = 0}, summary = {.len = 0}, event = new_event(step);
    float simple = (float)value;
    uint32_t bits;
    memcpy(&bits, &simple, sizeof bits);
    put_field(&number, VALUE_TAG, tag, strnlen(tag, TAG_MAX));
    put_key(&number, VALUE_SIMPLE, WIRE_32);
    put_low_first(&number, bits, 4);
    put_field(&summary, SUMMARY_VALUE, number.data, number.len);
    put_field(&event, EVENT_SUMMARY, summary.data, summary.len);
    return put_record(events, &event);
}

void fgio_events_close(fgio_events *events) {
    if (events == NULL)
        return;
    if (events->fd >= 0)
        close(events->fd);
    free(events);
}
