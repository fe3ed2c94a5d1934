/*
 * test_clock.h - clocks in place of the monotonic one: one that a test turns, so that timeouts do not depend on how
 * busy the machine is, and one that advances with every reading.
 */
#ifndef FRUG_TEST_TEST_CLOCK_H
#define FRUG_TEST_TEST_CLOCK_H

#include "base/clock.h"

#include <pthread.h>
#include <stdatomic.h>

static struct {
    pthread_mutex_t lock;
    double now;
    unsigned turns; /* never 0 while in use */
    int readers;    /* threads that have read the clock twice since the last turn */
} turned_clock = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline double read_turned_clock(void) {
    static _Thread_local unsigned turn, readings;
    pthread_mutex_lock(&turned_clock.lock);
    if (turn != turned_clock.turns) {
        turn = turned_clock.turns;
        readings = 0;
    }
    turned_clock.readers += ++readings == 2;
    double now = turned_clock.now;
    pthread_mutex_unlock(&turned_clock.lock);
    return now;
}

/** Let time pass. */
static inline void turned_clock_turn(double seconds) {
    pthread_mutex_lock(&turned_clock.lock);
    turned_clock.now += seconds;
    turned_clock.turns++;
    turned_clock.readers = 0;
    pthread_mutex_unlock(&turned_clock.lock);
}

/** Install the clock, which stands still. While no other thread runs, as restore_clock(). */
static inline void use_turned_clock(void) {
    turned_clock_turn(1);
    frugi_clock_source = read_turned_clock;
}

/** Number of threads that have read the clock twice since the last turn: those that wait for something read it again
 *  and again. */
static inline int turned_clock_readers(void) {
    pthread_mutex_lock(&turned_clock.lock);
    int readers = turned_clock.readers;
    pthread_mutex_unlock(&turned_clock.lock);
    return readers;
}

static inline void turned_clock_await(int readers) {
    while (turned_clock_readers() < readers)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/** For a thread that has failed while one other thread may wait for it: let time pass until that one is done. */
static inline void turned_clock_pass(const atomic_bool *done, double seconds) {
    turned_clock_turn(0); /* from now on only the other thread reads it */
    while (!atomic_load(done)) {
        if (turned_clock_readers() > 0)
            turned_clock_turn(seconds);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

/** A clock that advances by a microsecond with every reading: whatever is measured takes time. */
static inline double read_ticking_clock(void) {
    static atomic_ullong readings;
    return 1e-6 * (double)atomic_fetch_add(&readings, 1);
}

static inline void restore_clock(void) {
    frugi_clock_source = NULL;
}

#endif
