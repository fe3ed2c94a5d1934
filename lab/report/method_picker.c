/*
 * The methods of a panel to pick for its charts: checkboxes and, by group, their labels. Rules of the page's style say
 * what a checked box does to the series behind it, so no script is needed; see frugi_chart_page_style().
 */
#include "lab/report/method_picker.h"

#include <stdlib.h>

static void put_label(const frugi_series *s, size_t panel, frugi_text *to) {
    frugi_put(to, "<label class=\"m j%d c%d\" for=\"p%zu-%d\"><i class=\"d%d\"></i>%d ", s->number, s->color, panel,
              s->number, s->dash, s->number);
    frugi_put_escaped(to, s->name);
    frugi_put_raw(to, "</label>\n");
}

void frugi_picker_put(const frugi_panel *panel, size_t number, frugi_text *to) {
    frugi_series *series;
    size_t count = frugi_series_make(panel, &series);
    for (size_t i = 0; i < count; i++)
        frugi_put(to, "<input type=\"checkbox\" class=\"k k%d\" id=\"p%zu-%d\"%s>\n", series[i].number, number,
                  series[i].number, series[i].lit ? " checked" : "");
    frugi_put_raw(to, "<div class=\"pick\">");
    for (int group = 0; group < FRUGI_GROUPS; group++) {
        bool begun = false;
        for (size_t i = 0; i < count; i++) {
            if ((int)series[i].group != group)
                continue;
            if (!begun)
                frugi_put(to, "<p><b>%s</b><span>\n", frugi_group_name((frugi_group)group, panel->tuned));
            begun = true;
            put_label(&series[i], number, to);
        }
        frugi_put_raw(to, begun ? "</span></p>\n" : "");
    }
    if (count == FRUGI_SERIES_MOST)
        frugi_put(to, "<p>Charts have the first %d methods of the table.</p>\n", FRUGI_SERIES_MOST);
    frugi_put_raw(to, "</div>\n");
    free(series);
}
