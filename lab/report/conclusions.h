/* conclusions.h - what the numbers of a panel come to, in sentences. */
#ifndef FGL_CONCLUSIONS_H
#define FGL_CONCLUSIONS_H

#include "lab/report/run_stats.h"
#include "lab/report/text_buffer.h"

/** Takes one sentence, plain text; `loss` says that FruGrad comes off worse in it. */
typedef void (*fgl_verdict_taker)(void *user, bool loss, const char *sentence);

/** FruGrad's methods (all but dense, where there are none) beside dense and beside the others; losses too. */
void fgl_verdicts(const fgl_panel *panel, fgl_verdict_taker take, void *user);

#endif
