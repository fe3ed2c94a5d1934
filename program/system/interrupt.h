/*
 * interrupt.h - Ctrl-C while training: the first stops the run after the current step, the second ends the program.
 */
#ifndef FGP_INTERRUPT_H
#define FGP_INTERRUPT_H

/** Exit code of an interrupted program: 128 + SIGINT, as of shells. */
enum { FGP_EXIT_STOPPED = 130 };

/** Install handlers: SIGINT, SIGTERM and SIGHUP stop the running job after its step. */
void fgp_interrupt_catch(void);

/** Restore the previous handlers. */
void fgp_interrupt_restore(void);

#endif
