/*
 * progress.c - progress. The thread that draws looks ten times a second; what is done is an atomic number that the work
 * writes and never waits for. Without a terminal the first line comes when the work has proved to be long, the next
 * ones every ten seconds.
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

#define PATIENCE 2.0 /* seconds */
#define REDRAW   0.1
#define REPEAT   10.0 /* between plain lines */
#define TELLING  0.02 /* of the work: before, the time that is left is a guess */

enum { METERS = 8 };

struct fgio_meter {
    bool used;
    char what[200];
    uint64_t total, order; /* order: the highest was begun last */
    _Atomic uint64_t done;
    double start;
};

static struct {
    pthread_mutex_t turn; /* one begins or ends at a time */
    pthread_mutex_t lock; /* of what the thread that draws reads */
    pthread_cond_t wake;
    pthread_t thread;
    bool off, shown;
    fgio_meter meter[METERS];
    uint64_t begun;
    size_t active;
    double start, last; /* of the first one that is active; when something was shown */
} all = {.turn = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

/* Seconds until something is shown; negative: never. */
static double patience(void) {
    const char *text = getenv("FRUGRAD_PROGRESS");
    char *end = NULL;
    if (text == NULL || text[0] == '\0')
        return PATIENCE;
    double seconds = strtod(text, &end);
    return end != text && *end == '\0' && seconds >= 0 ? seconds : -1;
}

static void describe(const fgio_meter *m, double t, char *dst, size_t cap) {
    char clock[32], left[48] = "";
    double share = m->total > 0 ? (double)atomic_load(&m->done) / (double)m->total : 0;
    share = share > 1 ? 1 : share;
    fgio_clock_text(t - m->start, clock, sizeof clock);
    if (m->total == 0) {
        snprintf(dst, cap, "%s: %s", m->what, clock);
        return;
    }
    if (share >= TELLING && share < 1) {
        double rest = (t - m->start) * (1 - share) / share;
        char text[32];
        snprintf(left, sizeof left, ", %s left", fgio_clock_text(rest, text, sizeof text));
    }
    snprintf(dst, cap, "%s: %d %% in %s%s", m->what, (int)(100 * share), clock, left);
}

static const fgio_meter *newest(void) {
    const fgio_meter *found = NULL;
    for (size_t i = 0; i < METERS; i++)
        if (all.meter[i].used && (found == NULL || all.meter[i].order > found->order))
            found = &all.meter[i];
    return found;
}

static void show(double t) {
    char line[400];
    const fgio_meter *m = newest();
    if (m == NULL)
        return;
    describe(m, t, line, sizeof line);
    if (fgio_show_terminal()) {
        size_t width = fgio_show_width() - 1;
        if (width < sizeof line)
            line[width] = '\0';
        fgio_show_bar(line);
    } else {
        fgio_show_line("%s", line);
    }
    all.shown = true;
    all.last = t;
}

static void *draw(void *unused) {
    (void)unused;
    double wait = patience(), every = fgio_show_terminal() ? REDRAW : REPEAT;
    pthread_mutex_lock(&all.lock);
    while (all.active > 0) {
        struct timespec until;
        double t = frugi_clock();
        if (t - all.start >= wait && (!all.shown || t - all.last >= every))
            show(t);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += (long)(REDRAW * 1e9);
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&all.wake, &all.lock, &until);
    }
    pthread_mutex_unlock(&all.lock);
    return NULL;
}

/* Signals are for the thread that works. */
static bool start_thread(void) {
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int cause = pthread_create(&all.thread, NULL, draw, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return cause == 0;
}

static fgio_meter *free_meter(void) {
    for (size_t i = 0; i < METERS; i++)
        if (!all.meter[i].used)
            return &all.meter[i];
    return NULL;
}

fgio_meter *fgio_meter_begin(uint64_t total, const char *format, ...) {
    char what[sizeof all.meter[0].what];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    pthread_mutex_lock(&all.turn);
    pthread_mutex_lock(&all.lock);
    fgio_meter *m = all.off || patience() < 0 ? NULL : free_meter();
    if (m != NULL && all.active == 0) {
        all.start = frugi_clock();
        all.shown = false;
        m = start_thread() ? m : NULL; /* it waits for the lock */
    }
    if (m != NULL) {
        m->used = true;
        m->total = total;
        m->order = ++all.begun;
        m->start = frugi_clock();
        atomic_store(&m->done, 0);
        fgio_printable(what, m->what, sizeof m->what);
        all.active++;
        if (!(patience() > 0))
            show(m->start); /* at once, however short the work */
    }
    pthread_mutex_unlock(&all.lock);
    pthread_mutex_unlock(&all.turn);
    return m;
}

void fgio_meter_at(fgio_meter *m, uint64_t done) {
    if (m != NULL)
        atomic_store_explicit(&m->done, done, memory_order_relaxed);
}

void fgio_meter_end(fgio_meter *m) {
    if (m == NULL)
        return;
    pthread_mutex_lock(&all.turn);
    pthread_mutex_lock(&all.lock);
    m->used = false;
    bool last = --all.active == 0;
    if (last)
        pthread_cond_signal(&all.wake);
    pthread_mutex_unlock(&all.lock);
    if (last)
        pthread_join(all.thread, NULL);
    if (last && all.shown)
        fgio_show_clear();
    pthread_mutex_unlock(&all.turn);
}

void fgio_meter_off(void) {
    pthread_mutex_lock(&all.lock);
    all.off = true;
    pthread_mutex_unlock(&all.lock);
}
