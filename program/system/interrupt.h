/* interrupt.h - Ctrl-C while training: the first asks the run to stop after the step, the second ends the program. */
#ifndef FRUGI_INTERRUPT_H
#define FRUGI_INTERRUPT_H

/** What a program that was interrupted returns: 128 + SIGINT, as shells do. */
enum { FRUGI_EXIT_STOPPED = 130 };

/** From here on SIGINT, SIGTERM and SIGHUP ask the running job to stop. */
void frugi_stop_begin(void);

/** Give the signals back to whoever had them. */
void frugi_stop_end(void);

#endif
