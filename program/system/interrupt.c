/*
 * interrupt.c - stopping a run by signal.
 *
 * The handler restores the previous handlers (io/files.c: remove temporary files, then end), so that a second signal
 * ends the program at once, and requests the job to stop at the next step.
 */
#include "program/system/interrupt.h"

#include "io/end_signals.h"
#include "trainer/run/job.h"

#include <unistd.h>

static struct sigaction previous[FGIO_END_SIGNALS];
static volatile sig_atomic_t installed, print_notice;

static void restore_handlers(void) {
    if (installed)
        fgio_end_signals_restore(previous);
    installed = 0;
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
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    print_notice = isatty(STDERR_FILENO);
    installed = 1;
    fgio_end_signals_catch(&action, previous);
}

void fgp_interrupt_restore(void) {
    restore_handlers();
}
