/* method_picker.h - the methods of a panel to pick for its charts. */
#ifndef FGL_METHOD_PICKER_H
#define FGL_METHOD_PICKER_H

#include "lab/report/chart.h"

/** Checkboxes and labels of a panel (`number` from 1); the charts come behind them, in an element of class charts. */
void fgl_picker_put(const fgl_panel *panel, size_t number, fgl_text *to);

#endif
