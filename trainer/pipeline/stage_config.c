/* stage_config.c - how activations and their gradients are compressed between stages. */
#include "trainer/pipeline/pipeline.h"

#include "io/error.h"

#include <stdio.h>
#include <string.h>

#define TEXT_MAX 512

/* Messages are short for tensors, and compressed all the same. A frame stands for itself: nothing of a message may be
 * left for the next one, which is about other samples. */
static int parse_one(const char *text, size_t length, frug_config **config) {
    static const char *const stateless[] = {"topk", "random", "probabilistic", "hybrid"};
    static const char *const fixed[] = {"feedback=", "min_size=", "reduce=", "local="};
    char full[TEXT_MAX + 32];
    if (length == strlen("dense") && strncmp(text, "dense", length) == 0)
        return FGIO_EXIT_OK;
    if (length == 0 || length > TEXT_MAX)
        return fgio_usage_error("--stage-config: expected dense or a config string, not '%.*s'",
                                (int)(length > 64 ? 64 : length), text);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        const char *at = strstr(text, fixed[i]);
        if (at && at < text + length && (at == text || at[-1] == ','))
            return fgio_usage_error("--stage-config: %.*s has no effect on the messages of stages",
                                    (int)strlen(fixed[i]) - 1, fixed[i]);
    }
    snprintf(full, sizeof full, "%.*s,feedback=none,min_size=1", (int)length, text);
    if (frug_config_create(full, config) != FRUG_OK)
        return fgio_usage_error("--stage-config: %s", frug_last_error());
    const char *rule = frug_config_get(*config, "rule");
    bool known = strncmp(rule, "threshold:absolute", 18) == 0 || strcmp(rule, "threshold:percentile") == 0;
    for (size_t i = 0; i < sizeof stateless / sizeof *stateless; i++)
        known |= strncmp(rule, stateless[i], strlen(stateless[i])) == 0;
    return known ? FGIO_EXIT_OK
                 : fgio_usage_error("--stage-config: rule=%s remembers earlier messages, which were about other "
                                    "samples",
                                    rule);
}

int fgt_stage_config_parse(const char *text, fgt_stage_config *config) {
    *config = (fgt_stage_config){0};
    size_t first = strcspn(text, "/");
    const char *second = text[first] == '/' ? text + first + 1 : text;
    size_t length = text[first] == '/' ? strlen(second) : first;
    if (second != text && strchr(second, '/'))
        return fgio_usage_error("--stage-config: expected at most two configs, of activations and of gradients");
    int status = parse_one(text, first, &config->activations);
    if (status == FGIO_EXIT_OK)
        status = parse_one(second, length, &config->gradients);
    if (status != FGIO_EXIT_OK)
        fgt_stage_config_destroy(config);
    return status;
}

void fgt_stage_config_destroy(fgt_stage_config *config) {
    frug_config_destroy(config->activations);
    frug_config_destroy(config->gradients);
    *config = (fgt_stage_config){0};
}
