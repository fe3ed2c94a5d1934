/*
 * method_picker.c - checkboxes that highlight the methods of a panel in its charts, and their labels, by group.
 *
 * Rules of the page's style sheet define what a checked box does to its series, so no script is needed; see
 * fgl_chart_page_style().
 */
#include "lab/report/method_picker.h"

#include <stdlib.h>

static void put_label(const fgl_series *s, size_t panel, fgl_text *to) {
    fgl_put(to, "<label class=\"m j%d c%d\" for=\"p%zu-%d\"><i class=\"d%d\"></i>%d ", s->number, s->color, panel,
            s->number, s->dash, s->number);
    fgl_put_escaped(to, s->name);
    fgl_put_raw(to, "</label>\n");
}

void fgl_picker_put(const fgl_panel *panel, size_t number, fgl_text *to) {
    fgl_series *series;
    size_t count = fgl_series_make(panel, &series);
    for (size_t i = 0; i < count; i++)
        fgl_put(to, "<input type=\"checkbox\" class=\"k k%d\" id=\"p%zu-%d\"%s>\n", series[i].number, number,
                series[i].number, series[i].lit ? " checked" : "");
    fgl_put_raw(to, "<div class=\"pick\">");
    for (int group = 0; group < FGL_GROUPS; group++) {
        bool begun = false;
        for (size_t i = 0; i < count; i++) {
            if ((int)series[i].group != group)
                continue;
            if (!begun)
                fgl_put(to, "<p><b>%s</b><span>\n", fgl_group_name((fgl_group)group, panel->tuned));
            begun = true;
            put_label(&series[i], number, to);
        }
        fgl_put_raw(to, begun ? "</span></p>\n" : "");
    }
    if (count == FGL_MAX_SERIES)
        fgl_put(to, "<p>Charts have the first %d methods of the table.</p>\n", FGL_MAX_SERIES);
    fgl_put_raw(to, "</div>\n");
    free(series);
}
