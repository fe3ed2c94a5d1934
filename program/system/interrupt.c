/*
 * interrupt.c - asking a run to stop. The handler puts back what was there before (io/files.c: remove temporary files,
 * then die), so that a second signal ends the program at once, and tells the job, which stops at the next step.
 */
#include "program/system/interrupt.h"

#include "trainer/run/job.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

enum { SIGNALS = 3 };

static const int signals[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
static struct sigaction before[SIGNALS];
static volatile sig_atomic_t taken[SIGNALS];
static volatile sig_atomic_t speak;

static void give_back(void) {
    for (int i = 0; i < SIGNALS; i++)
        if (taken[i]) {
            taken[i] = 0;
            sigaction(signals[i], &before[i], NULL);
        }
}

static void on_signal(int number) {
    static const char text[] = "\nfrugrad: stopping after this step; once more to end at once\n";
    (void)number;
    fgt_job_interrupt();
    give_back();
    if (speak && write(STDERR_FILENO, text, sizeof text - 1) < 0)
        speak = 0;
}

void fgp_stop_begin(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < SIGNALS; i++)
        sigaddset(&action.sa_mask, signals[i]);
    speak = isatty(STDERR_FILENO);
    for (int i = 0; i < SIGNALS; i++)
        if (sigaction(signals[i], NULL, &before[i]) == 0 && before[i].sa_handler != SIG_IGN) {
            taken[i] = 1;
            sigaction(signals[i], &action, NULL);
        }
}

void fgp_stop_end(void) {
    give_back();
}
