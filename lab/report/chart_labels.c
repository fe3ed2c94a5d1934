/*
 * chart_labels.c - placement of labels inside the chart without overlaps.
 *
 * Widths are those of DejaVu Sans, the widest of the fonts that pages request, so that labels in other fonts are
 * narrower. A label gets the position around its point that covers the fewest lines among those that cover no label; if
 * all are occupied, the nearest free one in the chart, with a line to its point; and if there is none, it is not drawn:
 * the legend and the tooltip have the name.
 */
#include "lab/report/chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FONT 11.0 /* pixels */

enum { HIGH = 13, LEGEND_ROW = 16, INDENT = 108, SWATCH = 20 };

/* ---- widths ------------------------------------------------------------------------------------------ */

/* Width of the character at p in pixels; 0 for continuation bytes. */
static double width_at(const char *p) {
    static const unsigned char hundredths[] = {
        32, 41, 46, 84, 64, 96, 78, 28, 40,  40, 50, 84, 32, 37, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64,
        64, 64, 34, 34, 84, 84, 84, 54, 100, 69, 69, 70, 77, 64, 58, 78, 76, 30, 30, 66, 56, 87, 75, 79,
        61, 79, 70, 64, 62, 74, 69, 99, 69,  62, 69, 40, 34, 40, 84, 50, 50, 62, 64, 55, 64, 62, 36, 64,
        64, 28, 28, 58, 28, 98, 64, 62, 64,  64, 42, 53, 40, 64, 60, 82, 60, 60, 53, 64, 34, 64, 84,
    };
    unsigned char c = (unsigned char)*p;
    double share = c < 0x20 || c == 0x7f ? 54 : c < 0x7f ? hundredths[c - 0x20] : c < 0xc0 ? 0 : c < 0xe0 ? 90 : 105;
    return FONT * share / 100;
}

double fgl_label_width(const char *text) {
    double width = 0;
    for (; *text != '\0'; text++)
        width += width_at(text);
    return width;
}

/* The number of bytes of a text that fit into a width, in whole characters. */
static size_t fit(const char *text, double width) {
    size_t len = 0;
    while (text[len] != '\0' && (width -= width_at(text + len)) >= 0)
        len++;
    while (text[len] != '\0' && len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80)
        len--;
    return len;
}

const char *fgl_label_cut(const char *text, double width, char *dst, size_t cap) {
    size_t len = strlen(text);
    if (fgl_label_width(text) <= width && len < cap) {
        snprintf(dst, cap, "%s", text);
        return dst;
    }
    len = fit(text, width - FONT);
    while (len + 4 > cap || (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80))
        len--;
    snprintf(dst, cap, "%.*s\xe2\x80\xa6", (int)len, text);
    return dst;
}

int fgl_label_wrap(const char *text, double width, char line[2][200]) {
    line[1][0] = '\0';
    if (fgl_label_width(text) <= width) {
        fgl_label_cut(text, width, line[0], sizeof line[0]);
        return 1;
    }
    size_t len = fit(text, width), space = len;
    while (space > 0 && text[space] != ' ')
        space--;
    len = space > 0 ? space : len;
    while (len > 190 || (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80))
        len--;
    snprintf(line[0], sizeof line[0], "%.*s", (int)len, text);
    fgl_label_cut(text + len + (text[len] == ' '), width, line[1], sizeof line[1]);
    return 2;
}

/* ---- free space -------------------------------------------------------------------------------------- */

static void add_box(fgl_box **boxes, size_t *count, size_t *cap, fgl_box box) {
    if (*count == *cap) {
        size_t more = 2 * *cap + 32;
        fgl_box *all = realloc(*boxes, more * sizeof *all);
        if (all == NULL)
            return; /* out of memory: labels may overlap */
        *boxes = all;
        *cap = more;
    }
    (*boxes)[(*count)++] = box;
}

void fgl_label_space_add_label(fgl_label_space *room, fgl_box box) {
    add_box(&room->label, &room->labels, &room->labels_cap, box);
}

void fgl_label_space_add_line(fgl_label_space *room, fgl_box box) {
    add_box(&room->line, &room->lines, &room->lines_cap, box);
}

void fgl_label_space_free(fgl_label_space *room) {
    free(room->label);
    free(room->line);
    *room = (fgl_label_space){0};
}

static double overlap_area(const fgl_box *a, const fgl_box *b) {
    double wide = fmin(a->x1, b->x1) - fmax(a->x0, b->x0), high = fmin(a->y1, b->y1) - fmax(a->y0, b->y0);
    return wide > 0 && high > 0 ? wide * high : 0;
}

static bool is_free(const fgl_label_space *room, const fgl_box *b) {
    if (b->x0 < room->edge.x0 || b->x1 > room->edge.x1 || b->y0 < room->edge.y0 || b->y1 > room->edge.y1)
        return false;
    for (size_t i = 0; i < room->labels; i++)
        if (overlap_area(b, &room->label[i]) > 0)
            return false;
    return true;
}

static double covered_lines(const fgl_label_space *room, const fgl_box *b) {
    double sum = 0;
    for (size_t i = 0; i < room->lines; i++)
        sum += overlap_area(b, &room->line[i]);
    return sum;
}

static fgl_box box_at(double left, double middle, double width) {
    return (fgl_box){left, middle - HIGH / 2.0, left + width, middle + HIGH / 2.0};
}

/* The nearest free box anywhere; covered lines count as distance. */
static bool search_all(const fgl_label_space *room, double x, double y, double width, fgl_box *best) {
    double least = 1e300;
    for (double middle = room->edge.y0 + HIGH / 2.0; middle <= room->edge.y1 - HIGH / 2.0; middle += 5)
        for (double left = room->edge.x0; left + width <= room->edge.x1; left += 8) {
            fgl_box b = box_at(left, middle, width);
            double dx = fmax(fmax(left - x, x - left - width), 0), far = dx * dx + (middle - y) * (middle - y);
            if (far >= least || !is_free(room, &b) || (far += 10 * covered_lines(room, &b)) >= least)
                continue;
            least = far;
            *best = b;
        }
    return least < 1e300;
}

static bool search_near(const fgl_label_space *room, double x, double y, double width, fgl_box *best) {
    double least = 1e300;
    for (int ring = 0; ring < 3; ring++)
        for (int k = 0; k < 6; k++) {
            double far = 8 + 12.0 * ring, dy = ring * 13.0;
            double left = k < 2 ? x + 8 : k < 4 ? x - 8 - width : x - width / 2;
            double middle = k == 4 ? y - far - 3 : k == 5 ? y + far + 3 : k % 2 == 0 ? y - dy : y + dy;
            fgl_box b = box_at(left, middle, width);
            double cost = 20.0 * ring + k + covered_lines(room, &b);
            if (cost < least && is_free(room, &b)) {
                least = cost;
                *best = b;
            }
        }
    return least < 1e300;
}

bool fgl_label_space_place(fgl_label_space *room, double x, double y, double width, fgl_box *box) {
    if (!search_near(room, x, y, width, box) && !search_all(room, x, y, width, box))
        return false;
    fgl_label_space_add_label(room, (fgl_box){box->x0 - 3, box->y0, box->x1 + 3, box->y1});
    return true;
}

/* ---- tags -------------------------------------------------------------------------------------------- */

static void number_of(const fgl_tag *tag, char *dst, size_t cap) {
    snprintf(dst, cap, "%d", tag->series->number);
}

static void place_tag(fgl_label_space *room, fgl_tag *tag) {
    char number[16];
    double width = fgl_label_width(tag->series->name);
    number_of(tag, number, sizeof number);
    if (tag->series->lit && width <= FGL_MAX_NAME)
        tag->placed = tag->named = fgl_label_space_place(room, tag->x, tag->y, width, &tag->box);
    if (!tag->placed)
        tag->placed = fgl_label_space_place(room, tag->x, tag->y, fgl_label_width(number), &tag->box);
}

bool fgl_tags_place(fgl_label_space *room, fgl_tag *tag, size_t count) {
    bool all = true;
    for (int lit = 1; lit >= 0; lit--)
        for (size_t i = 0; i < count; i++)
            if (tag[i].series->lit == (lit == 1)) {
                place_tag(room, &tag[i]);
                all = all && tag[i].named;
            }
    return all;
}

void fgl_tag_draw(fgl_text *to, const fgl_tag *tag) {
    char number[16];
    const fgl_box *b = &tag->box;
    double x = tag->x, middle = (b->y0 + b->y1) / 2, edge = b->x0 > x ? b->x0 - 1 : b->x1 < x ? b->x1 + 1 : x;
    if (!tag->placed)
        return;
    if (fabs(middle - tag->y) > 20 || b->x0 > x + 20 || b->x1 < x - 20)
        fgl_put(to, "<path class=\"l\" style=\"stroke-width:.7;opacity:.6\" d=\"M%.1f %.1fL%.1f %.1f\"/>", x, tag->y,
                edge, middle);
    fgl_put(to, "<text class=\"t\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">",
            b->x0 > x   ? b->x0
            : b->x1 < x ? b->x1
                        : (b->x0 + b->x1) / 2,
            middle + 4,
            b->x0 > x   ? "start"
            : b->x1 < x ? "end"
                        : "middle");
    number_of(tag, number, sizeof number);
    fgl_put_escaped(to, tag->named ? tag->series->name : number);
    fgl_put_raw(to, "</text>");
}

/* ---- the legend ---------------------------------------------------------------------------------------- */

static void draw_entry(fgl_text *to, const fgl_series *s, const char *name, bool marks, double x, double y) {
    fgl_series_begin(to, s, true);
    fgl_put(to, "<path class=\"l\" stroke-dasharray=\"%s\" d=\"M%.1f %.1fh%d\"/>", fgl_series_dashes(s), x, y - 4,
            SWATCH - 4);
    if (marks)
        fgl_chart_mark(to, s->group, x + SWATCH / 2.0 - 2, y - 4, NULL);
    fgl_put(to, "<text x=\"%.1f\" y=\"%.1f\">", x + SWATCH, y);
    fgl_put_escaped(to, name);
    fgl_put_raw(to, "</text>");
    fgl_series_end(to);
}

/* One group, its name on the left; returns the baseline of its last line. */
static double draw_group(fgl_text *to, const fgl_tag *tag, size_t count, fgl_group group, fgl_legend_options of,
                         double y) {
    const char *title = fgl_group_name(group, of.tuned);
    double x = FGL_CHART_WIDTH; /* the first name begins a line */
    for (size_t i = 0; i < count; i++) {
        char name[200], cut[220];
        if (tag[i].series->group != group)
            continue;
        snprintf(name, sizeof name, "%d %s", tag[i].series->number, tag[i].series->name);
        fgl_label_cut(name, FGL_CHART_WIDTH - INDENT - SWATCH - 4, cut, sizeof cut);
        double wide = SWATCH + fgl_label_width(cut);
        if (x + wide > FGL_CHART_WIDTH - 2) {
            x = INDENT;
            y += LEGEND_ROW;
        }
        if (to != NULL && title != NULL)
            fgl_put(to, "<g class=\"ax\"><text x=\"4\" y=\"%.1f\">%s</text></g>\n", y, title);
        if (to != NULL)
            draw_entry(to, tag[i].series, cut, of.marks, x, y);
        title = NULL;
        x += wide + 12;
    }
    return y;
}

double fgl_legend(fgl_text *to, const fgl_tag *tag, size_t count, fgl_legend_options of, double y) {
    for (int group = 0; group < FGL_GROUPS; group++)
        y = draw_group(to, tag, count, (fgl_group)group, of, y);
    return y;
}
