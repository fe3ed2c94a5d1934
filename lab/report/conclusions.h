/* conclusions.h - the results of a panel as sentences. */
#ifndef FGL_CONCLUSIONS_H
#define FGL_CONCLUSIONS_H

#include "lab/report/run_stats.h"
#include "lab/report/text_buffer.h"

/** Called with one sentence of plain text; `loss`: FruGrad is worse. */
typedef void (*fgl_sentence_fn)(void *user, bool loss, const char *sentence);

/** Compare FruGrad's methods (or all but dense, if there are none) with dense and with the others; losses too. */
void fgl_conclusions(const fgl_panel *panel, fgl_sentence_fn emit, void *user);

#endif
