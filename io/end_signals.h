/*
 * end_signals.h - the signals that ask a program to end: SIGINT, SIGTERM and SIGHUP.
 */
#ifndef FGIO_END_SIGNALS_H
#define FGIO_END_SIGNALS_H

#include <signal.h>

enum { FGIO_END_SIGNALS = 3 };

extern const int fgio_end_signals[FGIO_END_SIGNALS];

/** Set a handler for the end signals, which wait while it runs; those that are ignored, as under nohup, stay ignored.
 * The handler may read `before`: it is complete before the first signal is caught. */
void fgio_end_signals_catch(const struct sigaction *action, struct sigaction before[FGIO_END_SIGNALS]);

/** Set the actions before again. A signal handler may call this. */
void fgio_end_signals_restore(const struct sigaction before[FGIO_END_SIGNALS]);

#endif
