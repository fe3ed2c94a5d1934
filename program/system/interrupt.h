/* interrupt.h - Ctrl-C while training: the first asks the run to stop after the step, the second ends the program. */
#ifndef FGP_INTERRUPT_H
#define FGP_INTERRUPT_H

/** What a program that was interrupted returns: 128 + SIGINT, as shells do. */
enum { FGP_EXIT_STOPPED = 130 };

/** From here on SIGINT, SIGTERM and SIGHUP ask the running job to stop. */
void fgp_stop_begin(void);

/** Give the signals back to whoever had them. */
void fgp_stop_end(void);

#endif
