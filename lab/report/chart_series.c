/*
 * chart_series.c - groups, colors and highlighting of methods in charts.
 *
 * Groups are found by the ids of methods, which suites and records share. Highlighted are dense, two FruGrad methods
 * and one of each other group, in the order of the table, then the next ones until there are six. Colors of well-known
 * methods are fixed, so that a method looks the same on every task.
 */
#include "lab/report/chart_series.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLACK, BLUE, FIRST_COLOR, LAST_COLOR = 8, DASHES = 4 };

/** By prefix of the id; color 0: any free one. */
static const struct {
    const char *prefix;
    fgl_group group;
    int color;
} known[] = {
    {"dense", FGL_GROUP_BASELINE, 0},      {"topk", FGL_GROUP_SPARSE, 2},       {"dgc", FGL_GROUP_SPARSE, 4},
    {"randomk", FGL_GROUP_SPARSE, 7},      {"demo", FGL_GROUP_SPARSE, 8},       {"threshold", FGL_GROUP_SPARSE, 0},
    {"hybrid", FGL_GROUP_SPARSE, 0},       {"rows", FGL_GROUP_SPARSE, 0},       {"channels", FGL_GROUP_SPARSE, 0},
    {"heads", FGL_GROUP_SPARSE, 0},        {"tiles", FGL_GROUP_SPARSE, 0},      {"learned", FGL_GROUP_SPARSE, 0},
    {"2-of-4", FGL_GROUP_SPARSE, 0},       {"entries", FGL_GROUP_SPARSE, 0},    {"qsgd", FGL_GROUP_QUANTIZED, 3},
    {"onebit", FGL_GROUP_QUANTIZED, 6},    {"signsgd", FGL_GROUP_QUANTIZED, 0}, {"plain", FGL_GROUP_VARIANT, 0},
    {"no-feedback", FGL_GROUP_VARIANT, 0}, {"none", FGL_GROUP_VARIANT, 0},      {"split", FGL_GROUP_VARIANT, 0},
    {"progressive", FGL_GROUP_VARIANT, 0}, {"static", FGL_GROUP_VARIANT, 0},    {"anneal", FGL_GROUP_VARIANT, 0},
    {"block", FGL_GROUP_VARIANT, 0},       {"select", FGL_GROUP_VARIANT, 0},    {"residual", FGL_GROUP_VARIANT, 0},
    {"94", FGL_GROUP_VARIANT, 0},          {"99", FGL_GROUP_VARIANT, 0},        {"rising", FGL_GROUP_VARIANT, 0},
    {"gsgd", FGL_GROUP_OTHER, 5},
};

const char *fgl_group_name(fgl_group group, bool tuned) {
    static const char *const names[FGL_GROUPS] = {"baseline",     "FruGrad", "sparsification",
                                                  "quantization", "other",   "FruGrad variants"};
    return tuned && group == FGL_GROUP_OURS ? "sketches" : names[group];
}

static int find_known(const char *method) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(method, known[i].prefix, strlen(known[i].prefix)) == 0)
            return (int)i;
    return -1;
}

static fgl_group group_of(const fgl_cell *cell) {
    int i = find_known(cell->first->method);
    if (cell->dense || cell->ours)
        return cell->dense ? FGL_GROUP_BASELINE : FGL_GROUP_OURS;
    return i < 0 ? FGL_GROUP_OTHER : known[i].group;
}

/* ---- stems ------------------------------------------------------------------------------------------- */

bool fgl_same_stem(const fgl_cell *a, const fgl_cell *b) {
    size_t len = fgl_method_stem(a->first->method);
    return len == fgl_method_stem(b->first->method) && strncmp(a->first->method, b->first->method, len) == 0;
}

bool fgl_workers_vary(const fgl_panel *panel) {
    for (size_t i = 1; i < panel->count; i++)
        if (panel->cell[i].workers > panel->cell[0].workers || panel->cell[i].workers < panel->cell[0].workers)
            return true;
    return false;
}

bool fgl_panel_by_stem(const fgl_panel *panel) {
    return strcmp(panel->suite, "sparsity") == 0 || panel->tuned || fgl_workers_vary(panel);
}

/* The common beginning of the labels of a stem, without a partial number. */
static void name_stem(const fgl_panel *panel, const fgl_cell *first, char *dst, size_t cap) {
    size_t len = strlen(first->label), all = len;
    for (size_t i = 0; i < panel->count; i++) {
        const char *other = panel->cell[i].label;
        size_t same = 0;
        while (fgl_same_stem(first, &panel->cell[i]) && same < len && other[same] == first->label[same])
            same++;
        if (fgl_same_stem(first, &panel->cell[i]))
            len = same;
    }
    while (len > 0 && len < all && strchr(" 0123456789.,:-(", first->label[len - 1]) != NULL)
        len--;
    while (len > 0 && len < all && ((unsigned char)first->label[len] & 0xc0) == 0x80)
        len--;
    if (len > 1)
        snprintf(dst, cap, "%.*s", (int)len, first->label);
    else
        snprintf(dst, cap, "%.*s", (int)fgl_method_stem(first->first->method), first->first->method);
}

static bool is_first(const fgl_panel *panel, size_t i) {
    for (size_t k = 0; k < i; k++)
        if (fgl_same_stem(&panel->cell[k], &panel->cell[i]))
            return false;
    return true;
}

/* ---- highlights and colors ----------------------------------------------------------------------------- */

/* Highlight up to `most` methods of a group that have a result; returns how many more may be highlighted. */
static size_t highlight_group(fgl_series *s, size_t count, fgl_group group, size_t most, size_t room) {
    for (size_t i = 0; i < count && most > 0 && room > 0; i++)
        if (s[i].group == group && !s[i].lit && !isnan(s[i].first->mean)) {
            s[i].lit = true;
            most--;
            room--;
        }
    return room;
}

static void choose_highlights(fgl_series *s, size_t count) {
    size_t room = highlight_group(s, count, FGL_GROUP_BASELINE, 1, FGL_MAX_HIGHLIGHTED);
    room = highlight_group(s, count, FGL_GROUP_OURS, 2, room);
    for (fgl_group group = FGL_GROUP_SPARSE; group < FGL_GROUPS; group++)
        room = highlight_group(s, count, group, 1, room);
    for (fgl_group group = FGL_GROUP_OURS; group < FGL_GROUPS; group++)
        room = highlight_group(s, count, group, count, room);
    highlight_group(s, count, FGL_GROUP_BASELINE, count, room);
}

/* An unused color, or if all are used one with another dash pattern. */
static void assign_color(fgl_series *s, int *used) {
    int i = find_known(s->first->first->method), color = i < 0 ? 0 : known[i].color, least = color;
    if (s->group == FGL_GROUP_BASELINE || s->group == FGL_GROUP_OURS)
        least = s->group == FGL_GROUP_OURS ? BLUE : BLACK;
    else if (color == 0 || used[color] > 0) {
        least = FIRST_COLOR;
        for (int k = FIRST_COLOR; k <= LAST_COLOR; k++)
            least = used[k] < used[least] ? k : least;
    }
    s->color = least;
    s->dash = used[least]++ % DASHES;
}

size_t fgl_series_make(const fgl_panel *panel, fgl_series **series) {
    bool stems = fgl_panel_by_stem(panel);
    int used[LAST_COLOR + 1] = {0};
    size_t count = 0;
    fgl_series *s = calloc(panel->count + 1, sizeof *s);
    *series = s;
    for (size_t i = 0; i < panel->count && count < FGL_MAX_SERIES && s != NULL; i++) {
        const fgl_cell *cell = &panel->cell[i];
        if (stems && !is_first(panel, i))
            continue;
        s[count] = (fgl_series){.first = cell, .number = (int)count + 1, .group = group_of(cell)};
        if (stems)
            name_stem(panel, cell, s[count].name, sizeof s[count].name);
        else
            snprintf(s[count].name, sizeof s[count].name, "%s", cell->label);
        count++;
    }
    if (count > 0)
        choose_highlights(s, count);
    for (int lit = 1; lit >= 0; lit--) /* highlighted series get their colors first */
        for (size_t i = 0; i < count; i++)
            if (s[i].lit == (lit == 1))
                assign_color(&s[i], used);
    return count;
}
