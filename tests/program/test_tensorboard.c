/*
 * test_tensorboard.c - event files against a golden record and an independent reader; lines of metrics and what
 * resuming keeps.
 *
 * The golden record was assembled by hand from the formats: TFRecord's framing, and Event with one Summary.Value.
 */
#include "trainer/checkpoint_helpers.h"
#include "base/crc32c.h"
#include "base/crc32c.h"
#include "io/tensorboard.h"
#include "io/files.h"
#include "io/metrics.h"

#include <sys/resource.h>

static char folder[256];

static int set_up(void **state) {
    (void)state;
    make_folder(folder, sizeof folder);
    fgio_files_init(); /* small limits on files become errors */
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    remove_folder(folder);
    return 0;
}

static uint64_t little_endian(const unsigned char *at, int bytes) {
    uint64_t bits = 0;
    for (int i = 0; i < bytes; i++)
        bits |= (uint64_t)at[i] << 8 * i;
    return bits;
}

static void checksums_are_those_of_the_library(void **state) {
    unsigned char bytes[100];
    (void)state;
    assert_int_equal(frugi_crc32c(0, "123456789", 9), 0xe3069283);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 37 + 5);
    for (size_t len = 0; len <= sizeof bytes; len++) {
        uint32_t want = frugi_crc32c(0, bytes, len);
        assert_int_equal(frugi_crc32c(0, bytes, len), want);
        assert_int_equal(frugi_crc32c(frugi_crc32c(0, bytes, len / 3), bytes + len / 3, len - len / 3), want);
    }
}

/* Read the only event file of the folder. */
static size_t read_events(unsigned char *bytes, size_t cap, char *path, size_t path_cap) {
    DIR *dir = opendir(folder);
    size_t len = 0;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (strncmp(e->d_name, "events.out.tfevents.", 20) == 0) {
            snprintf(path, path_cap, "%s/%s", folder, e->d_name);
            FILE *f = fopen(path, "rb");
            len = fread(bytes, 1, cap, f);
            fclose(f);
        }
    }
    closedir(dir);
    return len;
}

/* The next record's message; checks the frame. */
static const unsigned char *next_record(const unsigned char **at, const unsigned char *end, size_t *len) {
    assert_true(end - *at >= 16);
    *len = (size_t)little_endian(*at, 8);
    assert_true(*len <= (size_t)(end - *at) - 16);
    const unsigned char *data = *at + 12;
    uint32_t crc = frugi_crc32c(0, *at, 8);
    assert_int_equal(little_endian(*at + 8, 4), (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u));
    crc = frugi_crc32c(0, data, *len);
    assert_int_equal(little_endian(data + *len, 4), (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u));
    *at = data + *len + 4;
    return data;
}

static void a_scalar_is_written_as_tensorboard_reads_it(void **state) {
    /* step = 300: field 2, varint ac 02; summary: field 5, 13 bytes; value: field 1, 11 bytes; tag: field 1, 4 bytes;
     * simple_value: field 2, four bytes, 1.5f. */
    static const unsigned char golden[] = {0x10, 0xac, 0x02, 0x2a, 0x0d, 0x0a, 0x0b, 0x0a, 0x04,
                                           'l',  'o',  's',  's',  0x15, 0x00, 0x00, 0xc0, 0x3f};
    unsigned char bytes[4096];
    char path[600];
    fgio_tensorboard *events = NULL;
    size_t len;
    (void)state;
    assert_int_equal(fgio_tensorboard_open(folder, 7, &events), 0);
    assert_int_equal(fgio_tensorboard_scalar(events, "loss", 300, 1.5), 0);
    size_t all = read_events(bytes, sizeof bytes, path, sizeof path); /* before it is closed */
    const unsigned char *at = bytes, *end = bytes + all;
    const unsigned char *data = next_record(&at, end, &len);
    assert_int_equal(len, 9 + 2 + 13);
    assert_int_equal(data[0], 0x09); /* wall_time */
    double wall;
    uint64_t bits = little_endian(data + 1, 8);
    memcpy(&wall, &bits, 8);
    assert_true(wall > 1.5e9 && wall < 1e11);
    assert_memory_equal(data + 9,
                        "\x1a\x0d"
                        "brain.Event:2",
                        15);
    data = next_record(&at, end, &len); /* resumed after step 7: older records of step 8 and later are void */
    assert_int_equal(len, 9 + 2 + 4);
    assert_memory_equal(data + 9, "\x10\x08\x3a\x02\x08\x01", 6);
    data = next_record(&at, end, &len);
    assert_int_equal(len, 9 + sizeof golden);
    assert_memory_equal(data + 9, golden, sizeof golden);
    assert_ptr_equal(at, end);
    fgio_tensorboard_close(events);
    unlink(path);
}

static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_full_disk_leaves_whole_records(void **state) {
    unsigned char bytes[8192];
    char path[600];
    fgio_tensorboard *events = NULL;
    stderr_capture errors;
    size_t len, records = 0;
    int written = 0;
    (void)state;
    assert_int_equal(fgio_tensorboard_open(folder, 0, &events), 0);
    stderr_capture_begin(&errors);
    limit_files(1000);
    while (written < 1000 && fgio_tensorboard_scalar(events, "train/loss", 1, 2.5) == 0)
        written++;
    limit_files(RLIM_INFINITY);
    stderr_capture_end(&errors);
    assert_true(written > 0 && written < 1000);
    assert_non_null(strstr(errors.text, "cannot write"));
    assert_int_equal(fgio_tensorboard_scalar(events, "train/loss", 2, 2.5), 0); /* and there is room again */
    size_t all = read_events(bytes, sizeof bytes, path, sizeof path);
    for (const unsigned char *at = bytes; at < bytes + all; records++)
        next_record(&at, bytes + all, &len);
    assert_int_equal(records, 1 + written + 1);
    fgio_tensorboard_close(events);
    unlink(path);
}

static void expect_lines(const char *path, const char *text) {
    char bytes[4096];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    bytes[fread(bytes, 1, sizeof bytes - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(bytes, text);
}

static void resuming_drops_later_and_incomplete_lines(void **state) {
    static const char before[] = "{\"run\":\"a\"}\n{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":2.25}\nnonsense\n"
                                 "{\"step\":3}\n{\"step\":2,\"accuracy\":0.5}\n{\"step\":4.0}\n{\"step\":2,\"lo";
    static const char kept[] = "{\"run\":\"a\"}\n{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":2.25}\n"
                               "{\"step\":2,\"accuracy\":0.5}\n";
    char path[300], all[1000];
    fgio_metrics *metrics = NULL;
    (void)state;
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    FILE *f = fopen(path, "wb");
    fputs(before, f);
    fclose(f);
    assert_int_equal(fgio_metrics_open(path, 2, &metrics), 0);
    expect_lines(path, kept);
    assert_int_equal(fgio_metrics_put(metrics, json_pack("{s:i, s:f}", "step", 3, "loss", 0.125)), 0);
    snprintf(all, sizeof all, "%s{\"step\":3,\"loss\":0.125}\n", kept);
    expect_lines(path, all); /* before it is closed */
    fgio_metrics_close(metrics);
    assert_int_equal(count_files(folder, ".frugrad-"), 0);
    assert_int_equal(fgio_metrics_open(path, 0, &metrics), 0);
    fgio_metrics_close(metrics);
    expect_lines(path, "");
    unlink(path);
    assert_int_equal(fgio_metrics_open(path, 5, &metrics), 0); /* nothing to keep */
    fgio_metrics_close(metrics);
    unlink(path);
}

static void metrics_report_errors(void **state) {
    char path[300];
    fgio_metrics *metrics = NULL;
    stderr_capture errors;
    (void)state;
    snprintf(path, sizeof path, "%s/not/there", folder);
    stderr_capture_begin(&errors);
    int code = fgio_metrics_open(path, 0, &metrics);
    stderr_capture_end(&errors);
    assert_int_equal(code, 1);
    assert_non_null(strstr(errors.text, path));
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    assert_int_equal(fgio_metrics_open(path, 0, &metrics), 0);
    assert_int_equal(fgio_metrics_put(metrics, json_pack("{s:i}", "step", 1)), 0);
    stderr_capture_begin(&errors);
    limit_files(20);
    code = fgio_metrics_put(metrics, json_pack("{s:i, s:s}", "step", 2, "text", "twenty letters at least"));
    limit_files(RLIM_INFINITY);
    stderr_capture_end(&errors);
    assert_int_equal(code, 1);
    expect_lines(path, "{\"step\":1}\n");
    fgio_metrics_close(metrics);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_are_those_of_the_library),
        cmocka_unit_test(a_scalar_is_written_as_tensorboard_reads_it),
        cmocka_unit_test(a_full_disk_leaves_whole_records),
        cmocka_unit_test(resuming_drops_later_and_incomplete_lines),
        cmocka_unit_test(metrics_report_errors),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
