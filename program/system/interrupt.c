/*
 * interrupt.c - stopping a run by signal.
 *
 * The handler restores the previous handlers (io/files.c: remove temporary files, then end), so that a second signal
 * ends the program at once, and requests the job to stop at the next step.
 */
#include "program/system/interrupt.h"

#include "trainer/run/job.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

enum { SIGNALS = 3 };

static const int signals[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
static struct sigaction previous[SIGNALS];
static volatile sig_atomic_t installed[SIGNALS];
static volatile sig_atomic_t print_notice;

static void restore_handlers(void) {
    for (int i = 0; i < SIGNALS; i++)
        if (installed[i]) {
            installed[i] = 0;
            sigaction(signals[i], &previous[i], NULL);
        }
}

static void on_signal(int number) {
    static const char text[] = "\nfrugrad: stopping after this step; once more to end at once\n";
    (void)number;
    fgt_job_interrupt();
    restore_handlers();
    if (print_notice && write(STDERR_FILENO, text, sizeof text - 1) < 0)
        print_notice = 0;
}

void fgp_interrupt_catch(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < SIGNALS; i++)
        sigaddset(&action.sa_mask, signals[i]);
    print_notice = isatty(STDERR_FILENO);
    for (int i = 0; i < SIGNALS; i++)
        if (sigaction(signals[i], NULL, &previous[i]) == 0 && previous[i].sa_handler != SIG_IGN) {
            installed[i] = 1;
            sigaction(signals[i], &action, NULL);
        }
}

void fgp_interrupt_restore(void) {
    restore_handlers();
}
