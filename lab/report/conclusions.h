/* conclusions.h - what the numbers of a panel come to, in sentences. */
#ifndef FRUGI_CONCLUSIONS_H
#define FRUGI_CONCLUSIONS_H

#include "lab/report/run_stats.h"
#include "lab/report/text_buffer.h"

/** Takes one sentence, plain text; `loss` says that FruGrad comes off worse in it. */
typedef void (*frugi_verdict_taker)(void *user, bool loss, const char *sentence);

/** FruGrad's methods (all but dense, where there are none) beside dense and beside the others; losses too. */
void frugi_verdicts(const frugi_panel *panel, frugi_verdict_taker take, void *user);

#endif
