/*
 * end_signals.c - the signals that ask a program to end.
 */
#include "io/end_signals.h"

#include <stddef.h>

const int fgio_end_signals[FGIO_END_SIGNALS] = {SIGINT, SIGTERM, SIGHUP};

void fgio_end_signals_catch(const struct sigaction *action, struct sigaction before[FGIO_END_SIGNALS]) {
    struct sigaction masked = *action;
    sigemptyset(&masked.sa_mask);
    for (int i = 0; i < FGIO_END_SIGNALS; i++) {
        sigaddset(&masked.sa_mask, fgio_end_signals[i]);
        sigaction(fgio_end_signals[i], NULL, &before[i]);
    }
    for (int i = 0; i < FGIO_END_SIGNALS; i++)
        if (before[i].sa_handler != SIG_IGN)
            sigaction(fgio_end_signals[i], &masked, NULL);
}

void fgio_end_signals_restore(const struct sigaction before[FGIO_END_SIGNALS]) {
    for (int i = 0; i < FGIO_END_SIGNALS; i++)
        sigaction(fgio_end_signals[i], &before[i], NULL);
}
