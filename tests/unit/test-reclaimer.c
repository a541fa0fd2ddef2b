/* SPDX-License-Identifier: MIT */
/* The workers: kicks, deadlines, order, removal, the callback FIFO, and that who has nothing to do sleeps. */
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "await.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "clock.h"
#include "reclaimer.h"

#define HOUR_USEC 3600000000ull

struct fixture {
    struct callbacks callbacks;
    struct reclaimer *r;
};

static void fixture_init(struct fixture *f, unsigned n_workers)
{
    callbacks_init(&f->callbacks);
    assert_int_equal(reclaimer_new(n_workers, &f->callbacks, &f->r), 0);
}

static void fixture_deinit(struct fixture *f)
{
    reclaimer_stop(f->r);
    assert_null(reclaimer_free(f->r));
}

/* ---- A worker that is held ---- */

struct gate {
    struct runnable runnable;
    unsigned entered, open; /* atomic */
};

static uint64_t gate_run(struct runnable *r)
{
    struct gate *g = container_of(r, struct gate, runnable);

    (void)fetch_add_relaxed(&g->entered, 1);
    while (!load_acquire(&g->open)) /* pairs with gate_open() */
        (void)usleep(100);
    return RUN_NEVER;
}

/* One worker is in it, and stays until gate_open(). */
static void gate_close(struct gate *g, struct fixture *f)
{
    memset(g, 0, sizeof(*g));
    runnable_init(&g->runnable, gate_run);
    reclaimer_kick(f->r, &g->runnable);
    await(load_relaxed(&g->entered) == 1);
}

static void gate_open(struct gate *g)
{
    store_release(&g->open, 1); /* pairs with gate_run() */
}

/* ---- What happened, in order ---- */

static char story[4096];
static unsigned story_length;
static pthread_mutex_t story_lock = PTHREAD_MUTEX_INITIALIZER;

static void tell(char c)
{
    (void)pthread_mutex_lock(&story_lock);
    if (story_length + 1 < sizeof(story))
        story[story_length++] = c;
    story[story_length] = '\0';
    (void)pthread_mutex_unlock(&story_lock);
}

static unsigned story_now(void)
{
    unsigned n;

    (void)pthread_mutex_lock(&story_lock);
    n = story_length;
    (void)pthread_mutex_unlock(&story_lock);
    return n;
}

static int story_reset(void **state)
{
    story_length = 0;
    story[0] = '\0';
    return 0;
}

struct teller {
    struct runnable runnable;
    char name;
    unsigned again; /* so often RUN_AGAIN */
};

static uint64_t teller_run(struct runnable *r)
{
    struct teller *t = container_of(r, struct teller, runnable);

    tell(t->name);
    if (t->again == 0)
        return RUN_NEVER;
    t->again--;
    return RUN_AGAIN;
}

static void teller_init(struct teller *t, char name, unsigned again)
{
    *t = (struct teller){.name = name, .again = again};
    runnable_init(&t->runnable, teller_run);
}

/* ---- R1, R2 ---- */

#define N_ARENAS 5u
#define N_KICKERS 4u
#define N_KICKS 3000u

struct arena {
    struct runnable runnable;
    uint64_t wanted;   /* atomic: grows before each kick */
    uint64_t seen;     /* atomic: what the last run saw of it */
    unsigned inside;   /* atomic: runs at this moment */
    unsigned together; /* atomic: times that there were two */
    uint64_t n_runs;   /* plain: the lock orders runs */
};

static struct arena arenas[N_ARENAS];

static uint64_t arena_run(struct runnable *r)
{
    struct arena *a = container_of(r, struct arena, runnable);

    if (fetch_add_relaxed(&a->inside, 1) != 0)
        (void)fetch_add_relaxed(&a->together, 1);
    a->n_runs++;
    store_release(&a->seen, load_acquire(&a->wanted)); /* pairs with kicker_main() and the test */
    (void)fetch_sub_relaxed(&a->inside, 1);
    return a->n_runs % 7 == 0 ? now_usec() + 50 : a->n_runs % 11 == 0 ? RUN_AGAIN : RUN_NEVER;
}

static void *kicker_main(void *userdata)
{
    struct fixture *f = userdata;

    for (unsigned i = 0; i < N_KICKS; i++) {
        struct arena *a = &arenas[i % N_ARENAS];

        (void)__atomic_fetch_add(&a->wanted, 1, __ATOMIC_RELEASE); /* pairs with arena_run() */
        reclaimer_kick(f->r, &a->runnable);
    }
    return NULL;
}

/* After the last kick a run begins that sees what was done before it; never are two in one arena. */
static void test_no_kick_is_lost(void **state)
{
    for (unsigned n_workers = 1; n_workers <= 3; n_workers++) {
        struct fixture f;
        pthread_t kickers[N_KICKERS];

        fixture_init(&f, n_workers);
        for (unsigned i = 0; i < N_ARENAS; i++) {
            arenas[i] = (struct arena){0};
            runnable_init(&arenas[i].runnable, arena_run);
        }
        for (unsigned i = 0; i < N_KICKERS; i++)
            assert_int_equal(pthread_create(&kickers[i], NULL, kicker_main, &f), 0);
        for (unsigned i = 0; i < N_KICKERS; i++)
            assert_int_equal(pthread_join(kickers[i], NULL), 0);
        for (unsigned i = 0; i < N_ARENAS; i++) {
            await(load_acquire(&arenas[i].seen) == N_KICKERS * N_KICKS / N_ARENAS);
            reclaimer_remove(f.r, &arenas[i].runnable);
            assert_int_equal(arenas[i].together, 0);
        }
        fixture_deinit(&f);
    }
}

/* A kick while it runs: it runs once more, however many there were. */
static void test_kick_while_running(void **state)
{
    struct fixture f;
    struct gate g;

    fixture_init(&f, 2);
    gate_close(&g, &f);
    for (unsigned i = 0; i < 5; i++)
        reclaimer_kick(f.r, &g.runnable);
    gate_open(&g);
    await(load_relaxed(&g.entered) == 2);
    reclaimer_remove(f.r, &g.runnable);
    assert_int_equal(g.entered, 2);
    fixture_deinit(&f);
}

/* ---- R3 ---- */

static void test_runs_in_order(void **state)
{
    struct fixture f;
    struct gate g;
    struct teller t[4];

    fixture_init(&f, 1);
    gate_close(&g, &f);
    for (unsigned i = 0; i < 4; i++)
        teller_init(&t[i], (char)('a' + i), i == 0 ? 2 : 0);
    for (unsigned round = 0; round < 3; round++) /* who is queued is queued once */
        for (unsigned i = 0; i < 4; i++)
            reclaimer_kick(f.r, &t[i].runnable);
    gate_open(&g);
    await(story_now() == 6);
    assert_string_equal(story, "abcdaa");
    fixture_deinit(&f);
    assert_int_equal(story_length, 6);
}

struct pair {
    struct runnable greedy, modest;
    unsigned n_modest, stop; /* atomic */
};

static uint64_t greedy_run(struct runnable *r)
{
    return load_relaxed(&container_of(r, struct pair, greedy)->stop) ? RUN_NEVER : RUN_AGAIN;
}

static uint64_t modest_run(struct runnable *r)
{
    (void)fetch_add_relaxed(&container_of(r, struct pair, modest)->n_modest, 1);
    return RUN_NEVER;
}

/* One that always wants to go on starves neither another arena nor the callback FIFO nor a deadline. */
static void test_greedy_starves_nobody(void **state)
{
    struct fixture f;
    struct pair p = {0};

    fixture_init(&f, 1);
    runnable_init(&p.greedy, greedy_run);
    runnable_init(&p.modest, modest_run);
    reclaimer_kick(f.r, &p.greedy);
    for (unsigned i = 1; i <= 20; i++) {
        reclaimer_kick(f.r, &p.modest);
        await(load_relaxed(&p.n_modest) == i);
    }
    store_relaxed(&p.stop, 1);
    reclaimer_remove(f.r, &p.greedy);
    fixture_deinit(&f);
}

/* ---- Deadlines ---- */

struct alarm {
    struct runnable runnable;
    uint64_t deadline, step_usec;
    unsigned n_left, n_early, n_runs; /* atomic */
};

static uint64_t alarm_run(struct runnable *r)
{
    struct alarm *a = container_of(r, struct alarm, runnable);

    if (now_usec() < a->deadline)
        (void)fetch_add_relaxed(&a->n_early, 1);
    if (a->n_left == 0) {
        store_release(&a->n_runs, a->n_runs + 1); /* pairs with the test */
        return RUN_NEVER;
    }
    a->n_left--;
    a->deadline = now_usec() + a->step_usec;
    store_release(&a->n_runs, a->n_runs + 1);
    return a->deadline;
}

static void alarm_init(struct alarm *a, unsigned n, uint64_t step_usec)
{
    *a = (struct alarm){.n_left = n, .step_usec = step_usec};
    runnable_init(&a->runnable, alarm_run);
}

/* All of them come, none before its time. */
static void test_deadlines(void **state)
{
    static const uint64_t steps[] = {1, 100, 700, 3000, 20000};

    for (unsigned n_workers = 1; n_workers <= 3; n_workers++) {
        struct fixture f;
        struct alarm alarms[ARRAY_SIZE(steps)];

        fixture_init(&f, n_workers);
        for (unsigned i = 0; i < ARRAY_SIZE(steps); i++) {
            alarm_init(&alarms[i], 5, steps[i]);
            reclaimer_kick(f.r, &alarms[i].runnable);
        }
        for (unsigned i = 0; i < ARRAY_SIZE(steps); i++) {
            await(load_acquire(&alarms[i].n_runs) == 6);
            assert_int_equal(alarms[i].n_early, 0);
        }
        fixture_deinit(&f);
    }
}

/* A kick does not wait for the deadline, and replaces it. */
static void test_kick_before_deadline(void **state)
{
    struct fixture f;
    struct alarm a, other;

    fixture_init(&f, 2);
    alarm_init(&a, 1, HOUR_USEC);
    alarm_init(&other, 1, 1000); /* a nearer one, that comes although the first is far */
    reclaimer_kick(f.r, &a.runnable);
    await(load_acquire(&a.n_runs) == 1);
    reclaimer_kick(f.r, &other.runnable);
    await(load_acquire(&other.n_runs) == 2);
    assert_int_equal(load_acquire(&a.n_runs), 1);
    reclaimer_kick(f.r, &a.runnable);
    await(load_acquire(&a.n_runs) == 2);
    fixture_deinit(&f);
}

/* A worker at a long run holds up nobody's deadline while another worker is idle. */
static void test_deadline_beside_long_run(void **state)
{
    for (unsigned i = 0; i < 20; i++) {
        struct fixture f;
        struct alarm a;
        struct gate g;

        fixture_init(&f, 2);
        alarm_init(&a, 1, 20000);
        reclaimer_kick(f.r, &a.runnable);
        await(load_acquire(&a.n_runs) >= 1); /* on a busy machine the second may have come by now */
        (void)usleep(1000); /* both are idle, most likely; one waits for the deadline */
        gate_close(&g, &f);
        await(load_acquire(&a.n_runs) == 2);
        gate_open(&g);
        fixture_deinit(&f);
    }
}

/* ---- Remove ---- */

struct remover {
    struct fixture *f;
    struct runnable *runnable;
    unsigned done; /* atomic */
};

static void *remover_main(void *userdata)
{
    struct remover *m = userdata;

    reclaimer_remove(m->f->r, m->runnable);
    store_release(&m->done, 1); /* pairs with the test */
    return NULL;
}

/* It waits until the run is over, and what was kicked meanwhile does not run. */
static void test_remove_while_running(void **state)
{
    for (unsigned kicked = 0; kicked < 2; kicked++) {
        struct fixture f;
        struct gate g;
        struct remover m = {.f = &f, .runnable = &g.runnable};
        pthread_t thread;

        fixture_init(&f, 1);
        gate_close(&g, &f);
        assert_int_equal(pthread_create(&thread, NULL, remover_main, &m), 0);
        if (kicked)
            reclaimer_kick(f.r, &g.runnable);
        (void)usleep(2000);
        assert_false(load_acquire(&m.done));
        gate_open(&g);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(g.runnable.state, RUNNABLE_IDLE);
        if (!kicked)
            assert_int_equal(g.entered, 1);
        memset(&g, 0xff, sizeof(g)); /* nobody looks at it any more */
        fixture_deinit(&f);
    }
}

/* Out of the queue, first, middle and last; the rest runs, and what is queued later too. */
static void test_remove_queued(void **state)
{
    static const char *rests[] = {"bcd", "acd", "abd", "abc"};

    for (unsigned gone = 0; gone < 4; gone++) {
        struct fixture f;
        struct gate g;
        struct teller t[4];

        (void)story_reset(NULL);
        fixture_init(&f, 1);
        gate_close(&g, &f);
        for (unsigned i = 0; i < 3; i++) {
            teller_init(&t[i], (char)('a' + i), 0);
            reclaimer_kick(f.r, &t[i].runnable);
        }
        teller_init(&t[3], 'd', 0);
        if (gone == 3)
            reclaimer_kick(f.r, &t[3].runnable);
        reclaimer_remove(f.r, &t[gone].runnable);
        if (gone != 3)
            reclaimer_kick(f.r, &t[3].runnable); /* after the one that went was the last, maybe */
        gate_open(&g);
        await(story_now() == 3);
        reclaimer_stop(f.r);
        assert_string_equal(story, rests[gone]);
        fixture_deinit(&f);
    }
}

/* One that always wants to go on goes too. */
static void test_remove_greedy(void **state)
{
    for (unsigned n_workers = 1; n_workers <= 2; n_workers++) {
        struct fixture f;
        struct pair p = {0};
        struct remover m = {.f = &f, .runnable = &p.greedy};
        pthread_t thread;

        fixture_init(&f, n_workers);
        runnable_init(&p.greedy, greedy_run);
        reclaimer_kick(f.r, &p.greedy);
        assert_int_equal(pthread_create(&thread, NULL, remover_main, &m), 0);
        await(load_acquire(&m.done));
        assert_int_equal(pthread_join(thread, NULL), 0);
        fixture_deinit(&f);
    }
}

static void test_remove_armed(void **state)
{
    struct fixture f;
    struct alarm a, b;

    fixture_init(&f, 1);
    alarm_init(&a, 1, HOUR_USEC);
    alarm_init(&b, 1, HOUR_USEC);
    reclaimer_kick(f.r, &a.runnable);
    reclaimer_kick(f.r, &b.runnable);
    await(load_acquire(&a.n_runs) == 1 && load_acquire(&b.n_runs) == 1);
    reclaimer_remove(f.r, &a.runnable);
    memset(&a, 0xff, sizeof(a));
    reclaimer_kick(f.r, &b.runnable);
    await(load_acquire(&b.n_runs) == 2);
    fixture_deinit(&f);
}

/* ---- Callbacks ---- */

struct entry {
    struct callback callback;
    char name;
};

static void entry_run(struct callback *callback)
{
    tell(container_of(callback, struct entry, callback)->name);
}

static void entries_push(struct fixture *f, struct entry *entries, unsigned n, char name)
{
    for (unsigned i = 0; i < n; i++) {
        entries[i].name = name;
        callbacks_push(&f->callbacks, &entries[i].callback, entry_run);
    }
    reclaimer_kick_callbacks(f->r);
}

/* After callback-limit entries other work gets its turn; a new limit is the next turn's. */
static void test_callback_limit(void **state)
{
    static const unsigned limits[] = {1, 3, 10, 64};

    for (unsigned i = 0; i < ARRAY_SIZE(limits); i++) {
        enum { ENTRIES = 60 };
        struct fixture f;
        struct gate g;
        struct teller t;
        struct entry entries[ENTRIES];
        unsigned in_a_row = 0, n = 0;

        (void)story_reset(NULL);
        fixture_init(&f, 1);
        gate_close(&g, &f);
        teller_init(&t, 'r', 100);
        reclaimer_kick(f.r, &t.runnable);
        entries_push(&f, entries, ENTRIES, 'c');
        reclaimer_set_callback_limit(f.r, limits[i]);
        gate_open(&g);
        await(story_now() == ENTRIES + 101);
        for (unsigned k = 0; k < story_length; k++) {
            in_a_row = story[k] == 'c' ? in_a_row + 1 : 0;
            n += story[k] == 'c';
            assert_true(in_a_row <= limits[i]);
            if (n < ENTRIES && story[k] == 'r' && k > 0) /* nor does other work hold the entries up */
                assert_int_not_equal(story[k - 1], 'r');
        }
        assert_int_equal(n, ENTRIES);
        fixture_deinit(&f);
    }
}

static void test_fifo_and_direct(void **state)
{
    struct fixture f;
    struct gate g;
    struct entry a[2], b[2], direct[2] = {{.name = 'x'}, {.name = 'y'}};

    fixture_init(&f, 1);
    gate_close(&g, &f);
    entries_push(&f, a, 2, 'a');
    entries_push(&f, b, 2, 'b');
    for (unsigned i = 0; i < 2; i++)
        reclaimer_push_direct(f.r, &direct[i].callback, entry_run);
    gate_open(&g);
    await(story_now() == 6);
    assert_string_equal(story, "xyaabb");
    fixture_deinit(&f);
}

struct returner {
    struct callback callback;
    struct fixture *f;
    unsigned stop; /* atomic */
};

static void returner_run(struct callback *callback)
{
    struct returner *e = container_of(callback, struct returner, callback);

    if (!load_relaxed(&e->stop))
        reclaimer_push_direct(e->f->r, callback, returner_run);
}

/* What is on the worker's own queue again as soon as it has run takes no turn from the FIFO, nor from arenas. */
static void test_direct_starves_nobody(void **state)
{
    struct fixture f;
    struct returner returner = {.f = &f};
    struct entry entries[50];
    struct teller t;

    fixture_init(&f, 1);
    reclaimer_push_direct(f.r, &returner.callback, returner_run);
    entries_push(&f, entries, 50, 'c');
    reclaimer_kick_callbacks(f.r);
    await(story_now() == 50);
    teller_init(&t, 'r', 0);
    reclaimer_kick(f.r, &t.runnable);
    await(story_now() == 51);
    store_relaxed(&returner.stop, 1u);
    fixture_deinit(&f);
}

struct herd {
    struct fixture f;
    uint64_t n_run; /* plain: one worker at a time */
    unsigned inside, together;
};

static struct herd herd;

static void herd_run(struct callback *callback)
{
    if (fetch_add_relaxed(&herd.inside, 1) != 0)
        (void)fetch_add_relaxed(&herd.together, 1);
    free(callback);
    store_release(&herd.n_run, herd.n_run + 1); /* pairs with the test */
    (void)fetch_sub_relaxed(&herd.inside, 1);
}

static void *herd_main(void *userdata)
{
    for (unsigned i = 0; i < N_KICKS; i++) {
        struct callback *c = malloc(sizeof(*c));

        if (i % 2) {
            reclaimer_push_direct(herd.f.r, c, herd_run);
        } else {
            callbacks_push(&herd.f.callbacks, c, herd_run);
            reclaimer_kick_callbacks(herd.f.r);
        }
    }
    return NULL;
}

/* Each entry runs although the workers fall asleep between; one worker at a time is at them. */
static void test_no_callback_is_lost(void **state)
{
    pthread_t threads[N_KICKERS];

    memset(&herd, 0, sizeof(herd));
    fixture_init(&herd.f, 3);
    for (unsigned i = 0; i < N_KICKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, herd_main, NULL), 0);
    for (unsigned i = 0; i < N_KICKERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    await(load_acquire(&herd.n_run) == N_KICKERS * N_KICKS);
    assert_int_equal(herd.together, 0);
    fixture_deinit(&herd.f);
}

/* Who waits for a callback is not forgotten at the end; arenas are left alone. */
static void test_stop(void **state)
{
    struct fixture f;
    struct entry entries[20], direct = {.name = 'd'};
    struct teller t;

    fixture_init(&f, 2);
    reclaimer_stop(f.r);
    teller_init(&t, 'r', 0);
    reclaimer_kick(f.r, &t.runnable);
    entries_push(&f, entries, 20, 'c');
    reclaimer_push_direct(f.r, &direct.callback, entry_run);
    reclaimer_flush(f.r);
    fixture_deinit(&f);
    assert_string_equal(story, "dcccccccccccccccccccc");
    assert_null(reclaimer_free(NULL));
}

/* ---- R4 ---- */

/* Number of worker threads, and how often all of them went to sleep; UINT64_MAX: the kernel does not say. */
static unsigned workers_look(uint64_t *ret_switches)
{
    DIR *directory = opendir("/proc/self/task");
    unsigned n = 0;

    assert_non_null(directory);
    *ret_switches = 0;
    for (struct dirent *e; (e = readdir(directory));) {
        char path[300], line[256];
        bool is_worker = false, told = false;
        uint64_t switches;
        FILE *file;

        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
        file = fopen(path, "re");
        while (file && fgets(line, sizeof(line), file)) {
            is_worker |= strcmp(line, "Name:\treclaimer\n") == 0;
            if (is_worker && sscanf(line, "voluntary_ctxt_switches: %lu", &switches) == 1) {
                *ret_switches += switches;
                told = true;
            }
        }
        if (is_worker && !told)
            *ret_switches = UINT64_MAX;
        n += is_worker;
        if (file)
            (void)fclose(file);
    }
    (void)closedir(directory);
    return n;
}

static void assert_workers_sleep(unsigned n_workers)
{
    uint64_t before, after;
    unsigned n_still = 0;

    await(workers_look(&before) == n_workers);
    if (before == UINT64_MAX)
        skip();
    for (uint64_t until = now_usec() + PATIENCE_USEC; n_still < 5 && now_usec() < until;) {
        (void)workers_look(&before);
        (void)usleep(20000);
        (void)workers_look(&after);
        n_still = before == after ? n_still + 1 : 0;
    }
    assert_int_equal(n_still, 5);
}

static void test_idle_workers_sleep(void **state)
{
    struct fixture f;
    struct alarm far, once;
    struct entry entry;

    fixture_init(&f, 3);
    assert_workers_sleep(3);
    alarm_init(&once, 0, 0);
    reclaimer_kick(f.r, &once.runnable);
    entries_push(&f, &entry, 1, 'c');
    await(load_acquire(&once.n_runs) == 1 && story_now() == 1);
    assert_workers_sleep(3);
    alarm_init(&far, 1, HOUR_USEC); /* armed, but not now */
    reclaimer_kick(f.r, &far.runnable);
    await(load_acquire(&far.n_runs) == 1);
    assert_workers_sleep(3);
    fixture_deinit(&f);
}

/* More workers than there are places: as many as there are. */
static void test_many_workers(void **state)
{
    struct fixture f;
    uint64_t switches;

    fixture_init(&f, 1000);
    await(workers_look(&switches) == 16);
    fixture_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_kick_is_lost),
        cmocka_unit_test(test_kick_while_running),
        cmocka_unit_test_setup(test_runs_in_order, story_reset),
        cmocka_unit_test(test_greedy_starves_nobody),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_kick_before_deadline),
        cmocka_unit_test(test_deadline_beside_long_run),
        cmocka_unit_test(test_remove_while_running),
        cmocka_unit_test(test_remove_greedy),
        cmocka_unit_test(test_remove_queued),
        cmocka_unit_test(test_remove_armed),
        cmocka_unit_test(test_callback_limit),
        cmocka_unit_test_setup(test_fifo_and_direct, story_reset),
        cmocka_unit_test_setup(test_direct_starves_nobody, story_reset),
        cmocka_unit_test(test_no_callback_is_lost),
        cmocka_unit_test_setup(test_stop, story_reset),
        cmocka_unit_test_setup(test_idle_workers_sleep, story_reset),
        cmocka_unit_test(test_many_workers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
