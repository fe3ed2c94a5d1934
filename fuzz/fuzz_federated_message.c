/* fuzz_federated_message.c - untrusted messages of a federated run: what parses encodes to the same bytes; every type
 * is also tried with a correct header around arbitrary contents. */
#include "federated/message.h"

#include <stdlib.h>
#include <string.h>

static void feed(const unsigned char *bytes, size_t len) {
    fgf_message message;
    fgio_reason why;
    if (fgf_message_parse(bytes, len, &message, &why) != 0)
        return;
    if (fgf_message_size(&message) != len)
        abort();
    unsigned char *again = malloc(len);
    if (!again)
        return;
    fgf_message_encode(&message, again);
    if (message.type != FGF_OFFER && memcmp(again, bytes, len) != 0) /* an offer's loss may become a plain NaN */
        abort();
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    feed(data, size);
    unsigned char *framed = size <= FGF_PAYLOAD_MAX ? malloc(FGF_HEADER + size) : NULL;
    for (unsigned type = 0; framed && type <= FGF_MESSAGE_TYPES; type++) {
        const unsigned char header[FGF_HEADER] = {'F',
                                                  'G',
                                                  FGF_PROTOCOL,
                                                  (unsigned char)type,
                                                  (unsigned char)size,
                                                  (unsigned char)(size >> 8),
                                                  (unsigned char)(size >> 16),
                                                  0};
        memcpy(framed, header, sizeof header);
        if (size)
            memcpy(framed + FGF_HEADER, data, size);
        feed(framed, FGF_HEADER + size);
    }
    free(framed);
    return 0;
}
