/* fuzz_federated_files.c - other untrusted bytes of a federated run: changes of weights, headers of updates, lists of
 * clients, lines of rounds, by the first byte. Headers are also tried with a corrected checksum. */
#include "base/crc32c.h"
#include "base/float_bits.h"
#include "federated/identity_key.h"
#include "federated/round_history.h"
#include "federated/update_file.h"
#include "federated/weight_changes.h"
#include "io/json.h"

#include <stdlib.h>
#include <string.h>

#define N 300u

static void feed_changes(const unsigned char *bytes, size_t len) {
    float weights[N] = {0};
    fgio_reason why;
    if (fgf_changes_apply(bytes, len, N, weights, &why) != 0)
        for (unsigned i = 0; i < N; i++)
            if (weights[i] != 0)
                abort();
}

static void feed_header(const unsigned char *bytes, size_t len) {
    unsigned char header[FGF_UPDATE_HEADER] = {0}, again[FGF_UPDATE_HEADER];
    fgf_update update;
    fgio_reason why;
    fgf_update_parse(bytes, len, &update, &why);
    memcpy(header, bytes, len < sizeof header ? len : sizeof header);
    memcpy(header, "FRUGUPD1", 8);
    frugi_put32(header + sizeof header - 4, frugi_crc32c(0, header, sizeof header - 4));
    if (fgf_update_parse(header, sizeof header, &update, &why) != 0)
        abort();
    fgf_update_encode(&update, again);
    fgf_update back;
    if (fgf_update_parse(again, sizeof again, &back, &why) != 0 || back.upload != update.upload ||
        back.bytes != update.bytes)
        abort();
}

static void feed_list(const unsigned char *bytes, size_t len) {
    fgf_allow_list list = {0};
    fgio_reason why;
    if (fgf_allow_list_parse((const char *)bytes, len, &list, &why) == 0)
        for (size_t i = 0; i < list.count; i++)
            if (fgf_allow_list_find(&list, &list.client[i].key) != &list.client[i])
                abort();
    fgf_allow_list_free(&list);
}

/* What is read can be written and read again. */
static void feed_round(const unsigned char *bytes, size_t len) {
    fgf_round_report report, again;
    if (!fgf_round_from_line((const char *)bytes, len, &report))
        return;
    json_t *object = fgf_round_to_json(&report);
    char *line = fgio_json_dump(object, JSON_COMPACT);
    if (!line || !fgf_round_from_line(line, strlen(line), &again) || again.round != report.round ||
        again.updates != report.updates || again.changes != report.changes)
        abort();
    free(line);
    json_decref(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    void (*const feed[])(const unsigned char *, size_t) = {feed_changes, feed_header, feed_list, feed_round};
    feed[data[0] % 4](data + 1, size - 1);
    return 0;
}
