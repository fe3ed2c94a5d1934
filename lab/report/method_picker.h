/* method_picker.h - checkboxes that highlight the methods of a panel in its charts. */
#ifndef FGL_METHOD_PICKER_H
#define FGL_METHOD_PICKER_H

#include "lab/report/chart.h"

/** Checkboxes and labels of a panel (`number` from 1); the charts must follow, in an element of class charts. */
void fgl_picker_put(const fgl_panel *panel, size_t number, fgl_text *to);

#endif
