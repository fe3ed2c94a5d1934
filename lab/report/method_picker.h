/* method_picker.h - the methods of a panel to pick for its charts. */
#ifndef FRUGI_METHOD_PICKER_H
#define FRUGI_METHOD_PICKER_H

#include "lab/report/chart.h"

/** Checkboxes and labels of a panel (`number` from 1); the charts come behind them, in an element of class charts. */
void frugi_picker_put(const frugi_panel *panel, size_t number, frugi_text *to);

#endif
