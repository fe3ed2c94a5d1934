/*
 * server_state.c - the server's step when a round closes, and creating the state.
 *
 * The step is taken from the mean update as from a gradient. With `down` the difference that it makes is compressed,
 * with a residual on the server, and only what is sent is applied, by the server as well: few weights change, so that
 * clients have little to download.
 */
#include "federated/server_state.h"

#include "federated/server_state_file.h"
#include "federated/update_layout.h"
#include "federated/weight_changes.h"
#include "io/files.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/** A server optimizer by its short name. */
typedef struct server_optimizer {
    const char *name, *text;
    double rate;
} server_optimizer;

static const server_optimizer optimizers[] = {
    {"average", "sgd:momentum=0", 1},
    {"momentum", "sgd:momentum=0.9", 0.1},
    {"adam", "adamw:beta2=0.99,eps=1e-3,decay=0", 0.01},
    {"muon", "muon:decay=0", 0.01},
};

static const server_optimizer *find_optimizer(const char *name) {
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        if (strcmp(optimizers[i].name, name) == 0)
            return &optimizers[i];
    return NULL;
}

static int create_down(fgf_state *s, fgio_reason *why) {
    frug_config *config = NULL;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.total_steps = s->options.rounds;
    if (!s->options.down || !*s->options.down)
        return 0;
    frug_status status = frug_config_create(s->options.down, &config);
    if (status == FRUG_OK)
        status = frug_compressor_create(config, s->update_layout, &options, &s->down);
    frug_config_destroy(config);
    if (status == FRUG_OK)
        status = frug_compressor_bound(s->down, (frug_range){0, s->count}, &s->frame_cap);
    if (status != FRUG_OK)
        return fgio_fail(why, "%s", frug_last_error());
    s->frame = malloc(s->frame_cap);
    return s->frame ? 0 : fgio_fail(why, "not enough memory");
}

static int create_parts(fgf_state *s, fgio_reason *why) {
    const server_optimizer *known = find_optimizer(s->options.optimizer);
    s->count = frug_layout_elements(s->options.layout);
    s->rate = s->options.rate > 0 ? s->options.rate : known ? known->rate : 1;
    s->weights = malloc(s->count * sizeof *s->weights);
    s->changed = calloc(s->count, sizeof *s->changed);
    s->mean = malloc(s->count * sizeof *s->mean);
    s->next = malloc(s->count * sizeof *s->next);
    s->options.directory = strdup(s->options.directory);
    s->options.job = strdup(s->options.job);
    if (!s->weights || !s->changed || !s->mean || !s->next || !s->options.directory || !s->options.job)
        return fgio_fail(why, "not enough memory for the weights");
    if (frug_optimizer_create(known ? known->text : s->options.optimizer, s->options.layout, NULL, &s->optimizer) !=
            FRUG_OK ||
        fgf_update_layout(s->options.layout, s->options.config, &s->update_layout) != FRUG_OK ||
        frug_decoder_create(s->update_layout, 0, &s->decoder) != FRUG_OK)
        return fgio_fail(why, "%s", frug_last_error());
    return create_down(s, why);
}

static int make_directories(const char *dir, fgio_reason *why) {
    char path[FGF_PATH_MAX];
    if (strlen(dir) + 128 > sizeof path)
        return fgio_fail(why, "the name of the directory is too long");
    snprintf(path, sizeof path, "%s/incoming", dir);
    return fgio_directory_make(path) == FGIO_EXIT_OK ? 0 : fgio_fail(why, "%s cannot be made", path);
}

/* Two servers would each replace the other's DIR/state, and lose updates that were confirmed. DIR/state itself cannot
 * be locked, because it is replaced. */
static int lock_directory(fgf_state *s, fgio_reason *why) {
    char path[FGF_PATH_MAX];
    snprintf(path, sizeof path, "%s/lock", s->options.directory);
    s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (s->lock < 0)
        return fgio_fail(why, "%s cannot be opened: %s", path, strerror(errno));
    if (fgio_lock(s->lock) == 0)
        return 0;
    if (errno != EWOULDBLOCK)
        return fgio_fail(why, "%s cannot be locked: %s", path, strerror(errno));
    return fgio_fail(why, "%s is in use by another server: stop that one, or name another directory",
                     s->options.directory);
}

int fgf_state_open(const fgf_state_options *options, fgf_state **out, fgf_book *book, bool *resumed, fgio_reason *why) {
    fgf_state *s = calloc(1, sizeof *s);
    if (!s)
        return fgio_fail(why, "not enough memory");
    s->options = *options;
    s->lock = -1;
    s->options.sum.entries_max = FGF_TRIM_ENTRIES;
    *book = (fgf_book){0};
    int status = create_parts(s, why);
    if (status == 0)
        status = make_directories(options->directory, why);
    if (status == 0)
        status = lock_directory(s, why);
    if (status == 0) {
        *resumed = fgf_state_file_exists(s);
        if (!*resumed) {
            memcpy(s->weights, options->weights, s->count * sizeof *s->weights);
            status = RAND_bytes(s->run.bytes, FGF_RUN_ID) == 1 ? fgf_state_save(s, book, why)
                                                               : fgio_fail(why, "no random numbers");
        } else {
            status = fgf_state_reload(s, book, why);
        }
    }
    if (status == 0)
        *out = s;
    else
        fgf_state_close(s);
    return status;
}

void fgf_state_close(fgf_state *s) {
    if (!s)
        return;
    free(s->weights);
    free(s->changed);
    free(s->mean);
    free(s->next);
    free(s->frame);
    free((char *)s->options.directory);
    free((char *)s->options.job);
    frug_decoder_destroy(s->decoder);
    frug_optimizer_destroy(s->optimizer);
    frug_compressor_destroy(s->down);
    frug_layout_destroy(s->update_layout);
    if (s->lock >= 0) {
        flock(s->lock, LOCK_UN); /* a process that was forked meanwhile has the descriptor, too */
        close(s->lock);
    }
    free(s);
}

static void *load_frame(void *ctx, const fgf_update *update, fgio_reason *why) {
    const fgf_state *s = ctx;
    int fd = fgf_update_open(s->options.directory, s->round, update, why);
    void *frame = fd >= 0 ? malloc(update->bytes) : NULL;
    if (frame && fgf_update_read(fd, update, frame, why) != 0) {
        free(frame);
        frame = NULL;
    } else if (!frame && fd >= 0) {
        fgio_fail(why, "not enough memory");
    }
    if (fd >= 0)
        close(fd);
    return frame;
}

/* From the mean update to the next weights, in s->next. */
static int take_step(fgf_state *s, fgio_reason *why) {
    frug_range all = {0, s->count};
    memcpy(s->next, s->weights, s->count * sizeof *s->next);
    frug_status status = frug_optimizer_step(s->optimizer, s->round, all, s->mean, s->rate, s->next);
    if (status == FRUG_OK && s->down) {
        size_t len;
        for (uint64_t i = 0; i < s->count; i++)
            s->mean[i] = s->weights[i] - s->next[i];
        memcpy(s->next, s->weights, s->count * sizeof *s->next);
        status = frug_compress(s->down, s->round, all, s->mean, s->frame, s->frame_cap, &len);
        const void *frame = s->frame;
        if (status == FRUG_OK)
            status = frug_decode_apply(s->decoder, all, &frame, &len, 1, 1, 0, s->next);
    }
    return status == FRUG_OK ? 0 : fgio_fail(why, "%s", frug_last_error());
}

int fgf_state_close_round(fgf_state *s, const fgf_update *updates, size_t count, const fgf_book *book,
                          uint64_t *changes, fgio_reason *why) {
    fgio_reason second;
    int status = fgf_sum_updates(&s->options.sum, s->round, updates, count, s->decoder, load_frame, s, s->count,
                                 s->next, s->mean, why);
    if (status == 0)
        status = take_step(s, why);
    if (status == 0) {
        *changes = fgf_changes_note(s->next, s->count, (uint32_t)(s->round + 1), s->weights, s->changed);
        s->round++;
        status = fgf_state_save(s, book, why);
    }
    if (status != 0 && fgf_state_reload(s, NULL, &second) != 0)
        *why = second;
    if (status == 0)
        fgf_update_remove_before(s->options.directory, s->round);
    return status;
}

int fgf_config_create(const char *text, frug_config **out, fgio_reason *why) {
    static const char *const fixed[][2] = {{"local", "0"}, {"transform", "off"}};
    frug_config *config = NULL;
    if (frug_config_create(text, &config) != FRUG_OK)
        return fgio_fail(why, "%s", frug_last_error());
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        const char *value = frug_config_get(config, fixed[i][0]);
        if (value && strcmp(value, fixed[i][1]) != 0) {
            frug_config_destroy(config);
            return fgio_fail(why, "config: %s has no effect here; omit it", fixed[i][0]);
        }
    }
    *out = config;
    return 0;
}

int fgf_state_upload_max(const fgf_state *s, uint64_t *bytes, fgio_reason *why) {
    frug_config *config = NULL;
    frug_compressor *compressor = NULL;
    size_t bound = 0;
    frug_status status = frug_config_create(s->options.config, &config);
    if (status == FRUG_OK)
        status = frug_compressor_create(config, s->update_layout, NULL, &compressor);
    if (status == FRUG_OK)
        status = frug_compressor_bound(compressor, (frug_range){0, s->count}, &bound);
    frug_compressor_destroy(compressor);
    frug_config_destroy(config);
    *bytes = bound;
    return status == FRUG_OK ? 0 : fgio_fail(why, "%s", frug_last_error());
}
