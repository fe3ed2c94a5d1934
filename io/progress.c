/*
 * progress.c - progress of long work, drawn by a thread of its own.
 *
 * The thread wakes ten times a second. The amount done is an atomic number, so updating it never blocks the work.
 * Without a terminal the first line is printed after the delay, the next ones every ten seconds.
 */
#include "io/progress.h"

#include "base/clock.h"
#include "io/status_line.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DELAY           2.0 /* seconds */
#define REDRAW_INTERVAL 0.1
#define PRINT_INTERVAL  10.0 /* between plain lines */
#define ESTIMATE_FROM   0.02 /* share done from which the remaining time is estimated */

enum { MAX_METERS = 8 };

struct fgio_progress {
    bool used;
    char what[200];
    uint64_t total, order; /* order: the highest was begun last */
    _Atomic uint64_t done;
    double start;
};

static struct {
    pthread_mutex_t begin_end_lock; /* serializes begin and end */
    pthread_mutex_t lock;           /* guards all fields but done */
    pthread_cond_t wake;
    pthread_t thread;
    bool off, shown;
    fgio_progress meter[MAX_METERS];
    uint64_t begun;
    size_t active;
    double start, last; /* start of the first active meter; time of the last output */
} all = {
    .begin_end_lock = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

/* Seconds until progress is shown; negative: never. */
static double start_delay(void) {
    const char *text = getenv("FRUGRAD_PROGRESS");
    char *end = NULL;
    if (text == NULL || text[0] == '\0')
        return DELAY;
    double seconds = strtod(text, &end);
    return end != text && *end == '\0' && seconds >= 0 ? seconds : -1;
}

static void format_progress(const fgio_progress *m, double t, char *dst, size_t cap) {
    char clock[32], left[48] = "";
    double share = m->total > 0 ? (double)atomic_load(&m->done) / (double)m->total : 0;
    share = share > 1 ? 1 : share;
    fgio_duration_text(t - m->start, clock, sizeof clock);
    if (m->total == 0) {
        snprintf(dst, cap, "%s: %s", m->what, clock);
        return;
    }
    if (share >= ESTIMATE_FROM && share < 1) {
        double rest = (t - m->start) * (1 - share) / share;
        char text[32];
        snprintf(left, sizeof left, ", %s left", fgio_duration_text(rest, text, sizeof text));
    }
    snprintf(dst, cap, "%s: %d %% in %s%s", m->what, (int)(100 * share), clock, left);
}

static const fgio_progress *newest_meter(void) {
    const fgio_progress *found = NULL;
    for (size_t i = 0; i < MAX_METERS; i++)
        if (all.meter[i].used && (found == NULL || all.meter[i].order > found->order))
            found = &all.meter[i];
    return found;
}

static void show_newest(double t) {
    char line[400];
    const fgio_progress *m = newest_meter();
    if (m == NULL)
        return;
    format_progress(m, t, line, sizeof line);
    if (fgio_stderr_is_terminal()) {
        size_t width = fgio_terminal_width() - 1;
        if (width < sizeof line)
            line[width] = '\0';
        fgio_status_draw(line);
    } else {
        fgio_status_print("%s", line);
    }
    all.shown = true;
    all.last = t;
}

static void *draw_loop(void *unused) {
    (void)unused;
    double wait = start_delay(), every = fgio_stderr_is_terminal() ? REDRAW_INTERVAL : PRINT_INTERVAL;
    pthread_mutex_lock(&all.lock);
    while (all.active > 0) {
        struct timespec until;
        double t = frugi_clock();
        if (t - all.start >= wait && (!all.shown || t - all.last >= every))
            show_newest(t);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += (long)(REDRAW_INTERVAL * 1e9);
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&all.wake, &all.lock, &until);
    }
    pthread_mutex_unlock(&all.lock);
    return NULL;
}

/* The thread blocks all signals: the working thread handles them. */
static bool start_thread(void) {
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int cause = pthread_create(&all.thread, NULL, draw_loop, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return cause == 0;
}

static fgio_progress *free_meter(void) {
    for (size_t i = 0; i < MAX_METERS; i++)
        if (!all.meter[i].used)
            return &all.meter[i];
    return NULL;
}

fgio_progress *fgio_progress_begin(uint64_t total, const char *format, ...) {
    char what[sizeof all.meter[0].what];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    pthread_mutex_lock(&all.begin_end_lock);
    pthread_mutex_lock(&all.lock);
    fgio_progress *m = all.off || start_delay() < 0 ? NULL : free_meter();
    if (m != NULL && all.active == 0) {
        all.start = frugi_clock();
        all.shown = false;
        m = start_thread() ? m : NULL; /* the thread waits for the lock */
    }
    if (m != NULL) {
        m->used = true;
        m->total = total;
        m->order = ++all.begun;
        m->start = frugi_clock();
        atomic_store(&m->done, 0);
        fgio_printable(what, m->what, sizeof m->what);
        all.active++;
        if (!(start_delay() > 0))
            show_newest(m->start); /* no delay: show it however short the work is */
    }
    pthread_mutex_unlock(&all.lock);
    pthread_mutex_unlock(&all.begin_end_lock);
    return m;
}

void fgio_progress_update(fgio_progress *m, uint64_t done) {
    if (m != NULL)
        atomic_store_explicit(&m->done, done, memory_order_relaxed);
}

void fgio_progress_end(fgio_progress *m) {
    if (m == NULL)
        return;
    pthread_mutex_lock(&all.begin_end_lock);
    pthread_mutex_lock(&all.lock);
    m->used = false;
    bool last = --all.active == 0;
    if (last)
        pthread_cond_signal(&all.wake);
    pthread_mutex_unlock(&all.lock);
    if (last)
        pthread_join(all.thread, NULL);
    if (last && all.shown)
        fgio_status_clear();
    pthread_mutex_unlock(&all.begin_end_lock);
}

void fgio_progress_disable(void) {
    pthread_mutex_lock(&all.lock);
    all.off = true;
    pthread_mutex_unlock(&all.lock);
}
