/* SPDX-License-Identifier: MIT */
/*
 * Who waits for a grace period is served by one that began after the call: case 22, attacked. A thread of the daemon
 * is held at a test point, in the middle of a start or of a walk, while waiters come back and modes change; and a
 * thousand waiters in several processes call while the mode flips.
 *
 * What tells an early return: a reader that is in a section when the call is made must have left it when the call
 * returns.
 */
#include "daemon-fixture.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "basic/macro.h"

enum {
    WAITERS = 12, /* a group of them, more than wake-direct */
    CREWS = 10,   /* processes */
    CREW = 100,   /* waiters of each */
    READERS = 3,
    FLIPS = 40,
};

/* ---- What is counted ----------------------------------------------------------------------------------------------- */

static int count(const int *n)
{
    return __atomic_load_n(n, __ATOMIC_SEQ_CST);
}

static void assert_settled(struct daemon *d)
{
    int64_t woken;

    assert_true(wait_until(arena_figure(d, "a", "synchronizing") == 0));
    woken = arena_figure(d, "a", "directWakes") + arena_figure(d, "a", "workerWakes") +
            arena_figure(d, "a", "fifoWakes");
    assert_int_equal(arena_figure(d, "a", "synchronizes"), woken);
}

/* ---- Who is in flight ---------------------------------------------------------------------------------------------- */

static int child_synchronizes(void *userdata)
{
    struct reclaim *r = must_open(userdata, "a");

    return reclaim_synchronize(must_lane(r), 0, NULL); /* killed in it */
}

/* Given up, with a cookie, of a process that is killed: each counts until its time is over. */
static void case_22_in_flight(void **state)
{
    const struct timespec moment = {.tv_nsec = 20000000}, limit = seconds(HANG_SECONDS);
    struct daemon *d = *state;
    static struct actor reader;
    struct reclaim_lane *l;
    struct reclaim *r;
    uint64_t cookie;
    int64_t direct;
    pid_t child;

    daemon_start(d, "--arena", "a:16M", "--set", "wake-from-gp=auto", "--set", "wake-flood=3", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    actor_start_reading(&reader, r);
    assert_int_equal(reclaim_synchronize(l, 0, &moment), -ETIMEDOUT);
    assert_int_equal(arena_figure(d, "a", "synchronizing"), 1);
    child = child_start(child_synchronizes, d);
    assert_true(wait_until(arena_figure(d, "a", "synchronizing") == 2));
    child_kill(child);
    assert_int_equal(reclaim_gp_start(l, &cookie), 0);
    assert_int_equal(reclaim_gp_wait(l, cookie, &moment), -ETIMEDOUT);
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    assert_int_equal(reclaim_gp_wait(l, cookie, &limit), 0);
    assert_settled(d);
    assert_true(wait_until(n_clients(d) == 1)); /* not before: its ticket was on a list */

    /* three at once are a flood, and when they are served it is over */
    assert_null(actor_do(&reader, act_read_lock, NULL));
    for (int i = 0; i < 3; i++) {
        pid_t one = child_start(child_synchronizes, d);

        assert_true(wait_until(arena_figure(d, "a", "synchronizing") == i + 1));
        child_kill(one);
    }
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    assert_settled(d);
    assert_true(arena_figure(d, "a", "fifoWakes") >= 3);
    direct = arena_figure(d, "a", "directWakes");
    for (int i = 0; i < 3; i++)
        assert_int_equal(reclaim_synchronize(l, 0, &limit), 0);
    assert_int_equal(arena_figure(d, "a", "directWakes"), direct + 3);
    assert_settled(d);
    actor_stop(&reader);
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- Held in the middle -------------------------------------------------------------------------------------------- */

#ifdef RECLAIM_TEST_POINTS
struct group {
    struct actor actors[WAITERS];
    int n_called, n_done;
};

static void *act_synchronize(struct actor *a, void *userdata)
{
    const struct timespec limit = seconds(2 * HANG_SECONDS);
    struct group *g = userdata;
    int r;

    (void)__atomic_add_fetch(&g->n_called, 1, __ATOMIC_SEQ_CST);
    r = reclaim_synchronize(a->lane, 0, &limit);
    (void)__atomic_add_fetch(&g->n_done, 1, __ATOMIC_SEQ_CST);
    return (void *)(intptr_t)r;
}

static void group_start(struct group *g, struct reclaim *r)
{
    *g = (struct group){0};
    for (int i = 0; i < WAITERS; i++)
        actor_start(&g->actors[i], r);
}

static void group_stop(struct group *g)
{
    for (int i = 0; i < WAITERS; i++)
        actor_stop(&g->actors[i]);
}

/* Of actors first..last - 1, those that the daemon has on its lists then; before: those of others. */
static void group_call(struct daemon *d, struct group *g, int first, int last, int64_t before)
{
    for (int i = first; i < last; i++)
        actor_begin(&g->actors[i], act_synchronize, g);
    assert_true(wait_until(arena_figure(d, "a", "synchronizing") == before + last - first));
}

static char held_path[128];

static void hold_at(void *userdata)
{
    (void)setenv("RECLAIM_TEST_POINT", userdata, 1);
    (void)setenv("RECLAIM_TEST_HOLD", held_path, 1);
}

/* The daemon's thread that comes to this point waits there until released. */
static void daemon_start_held(struct daemon *d, const char *point, const char *setting)
{
    daemon_make_directory(d);
    (void)snprintf(held_path, sizeof(held_path), "%s/held", d->directory);
    d->before_exec = hold_at;
    d->userdata = (char *)(uintptr_t)point;
    daemon_start(d, "--arena", "a:16M", "--set", setting, NULL);
}

static bool is_held(void)
{
    return access(held_path, F_OK) == 0;
}

static void release(void)
{
    assert_int_equal(unlink(held_path), 0);
}

/* Waits for control's synchronize, as the main thread's call is: at any instant, and not through the bell. */
static int child_ctl_synchronizes(void *userdata)
{
    ctl_do(userdata, "synchronize", "a", NULL);
    return 0;
}

static bool child_is_back(pid_t pid)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

static int give_up_and_die(void *userdata)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    struct reclaim_lane *l;
    struct reclaim *r;

    CHECK(try_open(userdata, "a", 0, 0, 0, NULL, &r) == 0 && reclaim_lane_get(r, &l) == 0);
    CHECK(reclaim_synchronize(l, 0, &moment) == -ETIMEDOUT);
    (void)kill(getpid(), SIGKILL);
    return 1;
}

/* A dead client's ticket that is over only after all passes over its lane were: the lane is free nevertheless. */
static void test_ticket_outlives_its_lane(void **state)
{
    struct daemon *d = *state;
    struct actor reader = {0};
    struct reclaim *r;

    daemon_start_held(d, "ticket-done:hold", "wake-from-gp=no");
    r = must_open(d, "a");
    actor_start_reading(&reader, r);
    (void)child_wait(child_start(give_up_and_die, d));
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    assert_true(wait_until(is_held()));
    sleep_ms(500); /* by now no pass is to come; the test is right without */
    release();
    assert_true(wait_until(arena_figure(d, "a", "lanes") == 1));
    actor_stop(&reader);
    reclaim_close(r);
    daemon_stop(d);
    d->before_exec = NULL;
}

/*
 * The grace-period thread is held in the middle of a start. Who calls now, by ticket or by control, is not served by
 * that grace period: a reader is in its section since before the call.
 */
static void check_start_held(struct daemon *d, const char *point, bool moved)
{
    static struct actor reader;
    static struct group g;
    struct reclaim *r;
    pid_t control;

    daemon_start_held(d, point, "wake-from-gp=yes");
    r = must_open(d, "a");
    actor_start(&reader, r);
    group_start(&g, r);
    actor_begin(&g.actors[0], act_synchronize, &g);
    assert_true(wait_until(is_held()));
    assert_null(actor_do(&reader, act_read_lock, NULL));
    control = child_start(child_ctl_synchronizes, d);
    for (int i = 1; i < WAITERS; i++)
        actor_begin(&g.actors[i], act_synchronize, &g);
    assert_true(wait_until(count(&g.n_called) == WAITERS));
    sleep_ms(50); /* by now they have called; the test is right without */
    release();

    /* the new number is in sight: a section that begins now does not hold up those who called before */
    if (moved)
        assert_null(actor_end(&g.actors[0]));
    assert_true(wait_until(arena_figure(d, "a", "synchronizing") == WAITERS + !moved));
    sleep_ms(20);
    assert_int_equal(count(&g.n_done), moved);
    assert_false(child_is_back(control));
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    for (int i = moved; i < WAITERS; i++)
        assert_null(actor_end(&g.actors[i]));
    child_must_succeed(control);
    assert_settled(d);
    group_stop(&g);
    actor_stop(&reader);
    reclaim_close(r);
    daemon_stop(d);
}

static void case_22_start_held(void **state)
{
    check_start_held(*state, "grace-detached:hold", false);
    check_start_held(*state, "grace-state-started:hold", false);
    check_start_held(*state, "grace-started:hold", true);
    check_start_held(*state, "grace-membarrier:hold", true);
}

/* One of the group that is back; NULL: nobody is. */
static struct actor *find_back(struct group *g)
{
    for (int i = 0; i < WAITERS; i++) {
        int value;

        if (sem_getvalue(&g->actors[i].done, &value) == 0 && value > 0)
            return &g->actors[i];
    }
    return NULL;
}

struct walk {
    const char *point, *setting;
    bool others_go_on; /* what holds the walker leaves the grace-period thread free */
};

struct scene {
    struct daemon *d;
    struct reclaim *r;
    struct actor early, late; /* readers */
    struct group old, new;
    struct actor *back[2]; /* of the old group: woken before the walker was held */
};

/* The group is served by two grace periods; the walker of the second is held once it has woken the first one. */
static void walk_to_hold(struct scene *s)
{
    struct daemon *d = s->d;

    assert_null(actor_do(&s->early, act_read_lock, NULL));
    group_call(d, &s->old, 0, 1, 0);
    assert_true(wait_until(arena_figure(d, "a", "gracePeriodsStarted") == 1));
    group_call(d, &s->old, 1, WAITERS, 1); /* the others are served by the next */
    assert_null(actor_do(&s->early, act_read_unlock, NULL));
    assert_true(wait_until(is_held()));
    assert_true(wait_until(count(&s->old.n_done) >= 2));
    sleep_ms(20);
    assert_int_equal(count(&s->old.n_done), 2);
    for (int i = 0; i < 2; i++) {
        s->back[i] = find_back(&s->old);
        assert_non_null(s->back[i]);
        assert_null(actor_end(s->back[i]));
    }
}

/* The two call again at once, while a reader is in its section. */
static void walk_call_again(struct scene *s)
{
    assert_null(actor_do(&s->late, act_read_lock, NULL));
    for (int i = 0; i < 2; i++)
        actor_begin(s->back[i], act_synchronize, &s->old);
}

static void walk_are_back(struct scene *s)
{
    assert_null(actor_do(&s->late, act_read_unlock, NULL));
    for (int i = 0; i < 2; i++)
        assert_null(actor_end(s->back[i]));
}

/* Another grace period begins and ends while the walker stands still; then the two call once more. */
static void walk_others_go_on(struct scene *s)
{
    group_call(s->d, &s->new, 0, WAITERS, WAITERS);
    walk_are_back(s);
    for (int i = 0; i < WAITERS; i++)
        assert_null(actor_end(&s->new.actors[i]));
    assert_true(is_held());
    assert_int_equal(count(&s->old.n_done), 4);
    walk_call_again(s);
}

/* Those of the old list, whose grace period is over, are back although there is a reader; nobody else is. */
static void walk_end(struct scene *s, int n_old, int n_new)
{
    for (int i = 0; i < WAITERS; i++)
        if (&s->old.actors[i] != s->back[0] && &s->old.actors[i] != s->back[1])
            assert_null(actor_end(&s->old.actors[i]));
    sleep_ms(20);
    assert_int_equal(count(&s->old.n_done), n_old);
    assert_int_equal(count(&s->new.n_done), n_new);
    walk_are_back(s);
    for (int i = 0; i < WAITERS && n_new == 0; i++)
        assert_null(actor_end(&s->new.actors[i]));
    assert_settled(s->d);
}

static void scene_start(struct scene *s, struct daemon *d, const struct walk *walk)
{
    daemon_start_held(d, walk->point, walk->setting);
    ctl_do(d, "set", walk->others_go_on ? "wake-direct=0" : "wake-direct=1000", NULL);
    *s = (struct scene){.d = d, .r = must_open(d, "a")};
    actor_start(&s->early, s->r);
    actor_start(&s->late, s->r);
    group_start(&s->old, s->r);
    group_start(&s->new, s->r);
}

static void scene_stop(struct scene *s)
{
    group_stop(&s->old);
    group_stop(&s->new);
    actor_stop(&s->early);
    actor_stop(&s->late);
    reclaim_close(s->r);
    daemon_stop(s->d);
}

/*
 * A walker is held right after it has completed a waiter, who calls again at once: its node goes to the next list and
 * through the next grace period while the old list is still being walked. Modes change, new waiters come and are
 * served, too. It must not be back before the reader that was there as it called, and nobody is forgotten.
 */
static void check_walk_held(struct daemon *d, const struct walk *walk)
{
    static struct scene s;

    scene_start(&s, d, walk);
    walk_to_hold(&s);
    walk_call_again(&s);
    ctl_do(d, "set", "wake-from-gp=auto", "wake-flood=1", NULL);
    ctl_do(d, "set", "wake-from-gp=no", NULL);
    ctl_do(d, "set", "wake-from-gp=yes", "wake-direct=1000", NULL);
    if (walk->others_go_on) {
        walk_others_go_on(&s);
        release();
    } else {
        for (int i = 0; i < WAITERS; i++)
            actor_begin(&s.new.actors[i], act_synchronize, &s.new);
        assert_true(wait_until(count(&s.new.n_called) == WAITERS));
        release();
        assert_true(wait_until(arena_figure(d, "a", "synchronizing") == WAITERS + 2));
    }
    walk_end(&s, WAITERS + (walk->others_go_on ? 2 : 0), walk->others_go_on ? WAITERS : 0);
    scene_stop(&s);
}

/* The second waiter that is completed: the first of those whom the second grace period serves. */
static void case_22_walk_held(void **state)
{
    static const struct walk walks[] = {
        {"wake-direct:hold@2", "wake-from-gp=yes", false},
        {"wake-worker:hold@2", "wake-from-gp=yes", true},
        {"wake-fifo:hold@2", "wake-from-gp=no", true},
    };

    for (size_t i = 0; i < ARRAY_SIZE(walks); i++)
        check_walk_held(*state, &walks[i]);
}

/*
 * Held between the word that sends the client on and the one that says that its ticket is free again: the client's
 * next ticket comes while the last one is still under way, and is not forgotten.
 */
static void check_ticket_held(struct daemon *d, const char *setting)
{
    static struct actor reader;
    static struct group g;
    struct reclaim *r;

    daemon_start_held(d, "ticket-done:hold", setting);
    ctl_do(d, "set", "wake-direct=0", NULL);
    r = must_open(d, "a");
    actor_start(&reader, r);
    group_start(&g, r);
    assert_null(actor_do(&reader, act_read_lock, NULL));
    group_call(d, &g, 0, 1, 0);
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    assert_true(wait_until(is_held()));
    assert_null(actor_end(&g.actors[0])); /* it looks by itself */
    assert_null(actor_do(&reader, act_read_lock, NULL));
    actor_begin(&g.actors[0], act_synchronize, &g);
    ctl_do(d, "set", "wake-from-gp=auto", NULL);
    release();
    assert_true(wait_until(arena_figure(d, "a", "synchronizing") == 1));
    sleep_ms(20);
    assert_int_equal(count(&g.n_done), 1);
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    assert_null(actor_end(&g.actors[0]));
    assert_settled(d);
    group_stop(&g);
    actor_stop(&reader);
    reclaim_close(r);
    daemon_stop(d);
}

static void case_22_ticket_held(void **state)
{
    check_ticket_held(*state, "wake-from-gp=yes");
    check_ticket_held(*state, "wake-from-gp=no");
}
#else
static void without_points(void)
{
    (void)printf("skipped: built without test points (option test_points)\n");
    skip();
}

static void case_22_start_held(void **state)
{
    without_points();
}

static void case_22_walk_held(void **state)
{
    without_points();
}

static void case_22_ticket_held(void **state)
{
    without_points();
}
#endif

/* ---- A thousand of them -------------------------------------------------------------------------------------------- */

/* Shared by all processes of one test. */
struct board {
    uint64_t begun[READERS], ended[READERS]; /* sections, by number */
    int n_at_work, n_early, n_wrong, stop;
    uint32_t n_calls[CREWS * CREW];
};

struct reader {
    struct actor actor;
    struct board *board;
    int number;
};

static unsigned random_next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*seed >> 33);
}

/* Sections of up to a millisecond or two, each with its number on the board as long as it lasts. */
static void *act_read(struct actor *a, void *userdata)
{
    struct reader *reader = container_of(a, struct reader, actor);
    struct board *b = reader->board;
    uint64_t seed = (uint64_t)reader->number + 1;

    while (!count(&b->stop)) {
        uint64_t section = b->begun[reader->number] + 1;

        if (reclaim_read_lock(a->lane) != 0)
            return a; /* not NULL: it failed */
        __atomic_store_n(&b->begun[reader->number], section, __ATOMIC_SEQ_CST);
        (void)usleep(random_next(&seed) % 1500);
        __atomic_store_n(&b->ended[reader->number], section, __ATOMIC_SEQ_CST);
        reclaim_read_unlock(a->lane);
    }
    return NULL;
}

/* One call, of any kind. */
static int crew_call(struct reclaim_lane *l, unsigned kind)
{
    const struct timespec limit = seconds(2 * HANG_SECONDS), moment = {.tv_nsec = 1000000};
    uint64_t cookie;
    int r;

    switch (kind % 8) {
    case 0:
        r = reclaim_gp_start(l, &cookie);
        return r < 0 ? r : reclaim_gp_wait(l, cookie, &limit);
    case 1:
        return reclaim_synchronize(l, RECLAIM_EXPEDITED, &limit);
    case 2:
        return reclaim_synchronize(l, 0, &moment);
    default:
        return reclaim_synchronize(l, 0, &limit);
    }
}

struct hand {
    pthread_t thread;
    struct board *board;
    struct reclaim *r;
    int number;
};

/* Notes which sections are open, calls, and looks whether they are over. */
static int hand_call(struct hand *h, struct reclaim_lane *l, uint64_t *seed)
{
    struct board *b = h->board;
    uint64_t begun[READERS];
    int r;

    for (int i = 0; i < READERS; i++)
        begun[i] = __atomic_load_n(&b->begun[i], __ATOMIC_SEQ_CST);
    r = crew_call(l, random_next(seed));
    for (int i = 0; i < READERS && r == 0; i++)
        if (__atomic_load_n(&b->ended[i], __ATOMIC_SEQ_CST) < begun[i])
            (void)__atomic_add_fetch(&b->n_early, 1, __ATOMIC_SEQ_CST);
    return r;
}

static void *hand_main(void *userdata)
{
    struct hand *h = userdata;
    struct board *b = h->board;
    uint64_t seed = (uint64_t)h->number * 77 + 1;
    struct reclaim_lane *l = NULL;
    int r = reclaim_lane_get(h->r, &l);

    (void)__atomic_add_fetch(&b->n_at_work, 1, __ATOMIC_SEQ_CST);
    while ((r == 0 || r == -ETIMEDOUT) && !count(&b->stop)) {
        r = hand_call(h, l, &seed);
        b->n_calls[h->number]++;
    }
    if (r != 0 && r != -ETIMEDOUT)
        (void)__atomic_add_fetch(&b->n_wrong, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

struct crew {
    struct daemon *d;
    struct board *board;
    int number;
};

static int crew_main(void *userdata)
{
    const struct crew *crew = userdata;
    static struct hand hands[CREW];
    pthread_attr_t small;
    struct reclaim *r;

    CHECK(try_open(crew->d, "a", 0, 0, 0, NULL, &r) == 0);
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 256 << 10) == 0);
    for (int i = 0; i < CREW; i++) {
        hands[i] = (struct hand){.board = crew->board, .r = r, .number = crew->number * CREW + i};
        CHECK(pthread_create(&hands[i].thread, &small, hand_main, &hands[i]) == 0);
    }
    for (int i = 0; i < CREW; i++)
        CHECK(pthread_join(hands[i].thread, NULL) == 0);
    reclaim_close(r);
    return 0;
}

static void readers_start(struct reader *readers, struct board *b, struct reclaim *r)
{
    for (int i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.board = b, .number = i};
        actor_start(&readers[i].actor, r);
        actor_begin(&readers[i].actor, act_read, NULL);
    }
}

static void readers_stop(struct reader *readers)
{
    for (int i = 0; i < READERS; i++) {
        assert_null(actor_end(&readers[i].actor));
        actor_stop(&readers[i].actor);
    }
}

/* A thousand waiters while the setting is now this, now that one of a list ended by NULL. */
static void thousand(struct daemon *d, struct reclaim *r, const char *const *settings)
{
    struct board *b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static struct reader readers[READERS];
    struct crew crews[CREWS];
    pid_t pids[CREWS];
    size_t n_settings = 0;
    uint64_t seed = 3;

    assert_true(b != MAP_FAILED);
    while (settings[n_settings])
        n_settings++;
    for (int i = 0; i < CREWS; i++) {
        crews[i] = (struct crew){.d = d, .board = b, .number = i};
        pids[i] = child_start(crew_main, &crews[i]);
    }
    assert_true(wait_until(count(&b->n_at_work) == CREWS * CREW));
    readers_start(readers, b, r);
    for (int i = 0; i < FLIPS; i++) {
        ctl_do(d, "set", settings[random_next(&seed) % n_settings], NULL);
        sleep_ms(random_next(&seed) % 20);
    }
    __atomic_store_n(&b->stop, 1, __ATOMIC_SEQ_CST);
    readers_stop(readers);
    for (int i = 0; i < CREWS; i++)
        child_must_succeed(pids[i]); /* all of them are back */
    assert_int_equal(b->n_early, 0);
    assert_int_equal(b->n_wrong, 0);
    for (int i = 0; i < CREWS * CREW; i++)
        assert_true(b->n_calls[i] > 0);
    assert_settled(d);
    (void)munmap(b, sizeof(*b));
}

static void case_22_thousand_while_modes_flip(void **state)
{
    static const char *const settings[] = {"wake-from-gp=no",  "wake-from-gp=yes",   "wake-from-gp=auto",
                                           "wake-flood=1",     "wake-flood=64",      "wake-flood=1000",
                                           "callback-limit=1", "callback-limit=100", NULL};
    struct daemon *d = *state;
    struct reclaim *r;

    daemon_start(d, "--arena", "a:16M", "--set", "wake-direct=5", NULL);
    r = must_open(d, "a");
    thousand(d, r, settings);
    assert_true(arena_figure(d, "a", "maxDirectWakes") <= 5);
    assert_true(arena_figure(d, "a", "workerWakes") > 0);
    assert_true(arena_figure(d, "a", "fifoWakes") > 0);
    reclaim_close(r);
    daemon_stop(d);
}

/* The grace-period thread wakes no more than wake-direct at one end, and after the flood it wakes them again. */
static void case_22_thousand_auto(void **state)
{
    static const char *const settings[] = {"wake-from-gp=auto", NULL};
    const struct timespec limit = seconds(HANG_SECONDS);
    struct daemon *d = *state;
    struct reclaim_lane *l;
    struct reclaim *r;
    int64_t direct, fifo;

    daemon_start(d, "--arena", "a:16M", "--set", "wake-from-gp=auto", "--set", "wake-direct=3", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    thousand(d, r, settings);
    assert_true(arena_figure(d, "a", "maxDirectWakes") <= 3);
    fifo = arena_figure(d, "a", "fifoWakes");
    direct = arena_figure(d, "a", "directWakes");
    assert_true(fifo > 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(reclaim_synchronize(l, 0, &limit), 0);
    assert_int_equal(arena_figure(d, "a", "directWakes"), direct + 10);
    assert_int_equal(arena_figure(d, "a", "fifoWakes"), fifo);
    reclaim_close(r);
    daemon_stop(d);
}

/* After a failed test a thread of the daemon may still be held. */
static int teardown(void **state)
{
#ifdef RECLAIM_TEST_POINTS
    (void)unlink(held_path);
#endif
    return daemon_teardown(state);
}

#define sync_test(name) cmocka_unit_test_prestate_setup_teardown(name, NULL, teardown, &d)

int main(void)
{
    struct daemon d = {0};
    const struct CMUnitTest tests[] = {
        sync_test(case_22_in_flight),
        sync_test(case_22_start_held),
        sync_test(case_22_walk_held),
#ifdef RECLAIM_TEST_POINTS
        sync_test(test_ticket_outlives_its_lane),
#endif
        sync_test(case_22_ticket_held),
        sync_test(case_22_thousand_while_modes_flip),
        sync_test(case_22_thousand_auto),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
