/* coll_sim_fiber.h - ranks as fibers of one thread, and the loop that advances time.
 *
 * A rank runs until it waits in progress.  Then the scheduler takes the next event, in order of time, and continues the rank that
 * it concerns.  The seed determines the order of events of the same time. */
#ifndef COLL_SIM_FIBER_H
#define COLL_SIM_FIBER_H

#if defined(COLL__SIM_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(COLL__SIM_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

/* ---- >>switching ---- */

/* Switches to `stack`; is_last: never switched back. */
static void coll__fiber_switch(coll__fiber *from, coll__fiber *to, const void *stack, size_t length, bool is_last)
{
#if defined(COLL__SIM_ASAN)
    __sanitizer_start_switch_fiber(is_last ? NULL : &from->fake_stack, stack, length);
#elif defined(COLL__SIM_TSAN)
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
    (void)from, (void)to, (void)stack, (void)length, (void)is_last;
#if defined(COLL__SIM_FIBERS)
    (void)swapcontext(&from->context, &to->context);
#endif
#if defined(COLL__SIM_ASAN)
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}

static void coll__fiber_leave(coll__sim_rank *r, bool is_last)
{
    coll__sim *w = r->world;

    w->running = NULL;
    coll__fiber_switch(&w->fibers[r->place], &w->scheduler, w->main_bottom, w->main_length, is_last);
}

static void coll__fiber_enter(coll__sim_rank *r)
{
    coll__sim *w = r->world;

    COLL__ASSERT(r->state == COLL__SIM_SUSPENDED && !w->running, "rank %d runs in state %d%s", r->rank, (int)r->state,
                 w->running ? ", and another one does" : "");
    r->state = COLL__SIM_READY;
    r->generation++;
    r->clock = coll__later(r->clock, w->now);
    w->running = r;
    coll__fiber_switch(&w->scheduler, &w->fibers[r->place], w->stacks + (size_t)r->place * w->stack_each, w->stack_each, false);
}

/* The first function on a fiber's stack.  makecontext passes integers only. */
static void coll__fiber_main(unsigned high, unsigned low)
{
    coll__sim *w = (coll__sim *)(uintptr_t)((uint64_t)high << 32 | low);
    coll__sim_rank *r = w->running;

#if defined(COLL__SIM_ASAN)
    __sanitizer_finish_switch_fiber(NULL, &w->main_bottom, &w->main_length);
#endif
    w->body(w->arg, r);
    r->state = COLL__SIM_FINISHED;
    w->fibers[r->place].is_over = true;
    w->live--;
    coll__fiber_leave(r, true);
}

static void coll__fiber_suspend(coll__sim_rank *r)
{
    r->state = COLL__SIM_SUSPENDED;
    r->world->fibers[r->place].role = r;
}

/* Waits for an event of this rank, or until `deadline` (coll__sim_never: none) or the next poll (poll >= 0). */
static void coll__fiber_wait(coll__sim_rank *r, double deadline, double poll)
{
    coll__sim *w = r->world;

    coll__fiber_suspend(r);
    r->wake_at = coll__sim_never;
    r->deadline = deadline;
    if (poll >= 0) {
        coll__sim_push(w, COLL__SIM_POLL, poll, r, r->generation);
    } else if (deadline < r->timer_at) {          /* one timer per rank: an early one is set again              */
        r->timer_at = deadline;
        coll__sim_push(w, COLL__SIM_TIMER, deadline, r, 0);
    }
    coll__fiber_leave(r, false);
}

/* ---- >>events ---- */

static void coll__sim_stuck(coll__sim *w);

static void coll__sim_timer(coll__sim *w, coll__sim_rank *r, double time)
{
    if (time < r->timer_at || r->timer_at < time) return;         /* an earlier one was set since               */
    r->timer_at = coll__sim_never;
    if (r->state != COLL__SIM_SUSPENDED || !(r->deadline < coll__sim_never)) return;
    if (r->deadline > time) {
        r->timer_at = r->deadline;
        coll__sim_push(w, COLL__SIM_TIMER, r->deadline, r, 0);
        return;
    }
    w->now = coll__later(w->now, time);
    w->idle++;
    coll__fiber_enter(r);
}

static void coll__sim_notice(coll__sim *w, const coll__sim_rank *r)
{
    coll_failure failure = { COLL_OK, -1, "" };
    coll__set_failure(&failure, COLL_ERR_PEER, r->rank, "rank %d was killed at ", r->rank);
    coll__append_time(failure.text, sizeof failure.text, r->clock);
    coll__sim_end(w, &failure);
}

/* A fault that was given with a time. */
static void coll__sim_strike_now(coll__sim *w, coll__sim_strike *s)
{
    for (int i = 0; i < w->size && !s->is_over; i++)
        if (w->ranks[i].place == s->fault.rank)
            coll__sim_strike_rank(&w->ranks[i], s->fault.kind == COLL_SIM_KILL, s->fault.time);
    if (w->fibers && !w->fibers[s->fault.rank].newest) w->fibers[s->fault.rank].is_over = true;
    s->is_over = true;
}

/* Processes the next event.  Returns false: there is none. */
static bool coll__sim_step(coll__sim *w)
{
    coll__sim_event e;

    if (!coll__sim_pop(w, &e)) return false;
    COLL__ASSERT(e.time >= w->now, "an event of kind %d at %g s comes at %g s", e.kind, e.time, w->now);
    coll__sim_rank *r = (coll__sim_rank *)e.what;
    if (e.kind == COLL__SIM_TIMER) {
        coll__sim_timer(w, r, e.time);
        return true;
    }
    const bool is_turn = e.kind == COLL__SIM_RUN || e.kind == COLL__SIM_POLL;
    if (is_turn && (r->generation != e.generation || r->state != COLL__SIM_SUSPENDED)) return true;
    w->now = e.time;
    w->idle = e.kind == COLL__SIM_POLL ? w->idle + 1 : 0;
    const uint64_t rank = e.kind <= COLL__SIM_DELIVER || e.kind == COLL__SIM_STRIKE ? 0 : (uint64_t)r->rank;
    w->order = (w->order ^ (uint64_t)e.kind ^ rank << 8) * UINT64_C(0x100000001b3);
    coll__parcel *const p = e.kind <= COLL__SIM_DELIVER ? (coll__parcel *)e.what : NULL;
    if (p && p->is_cancelled) coll__parcel_give(w, p);
    else if (e.kind == COLL__SIM_INJECT) coll__parcel_leave(w, p, w->now);
    else if (e.kind == COLL__SIM_ARRIVE) coll__parcel_arrive(w, p);
    else if (p) coll__parcel_deliver(w, p);
    else if (is_turn) coll__fiber_enter(r);
    else if (e.kind == COLL__SIM_LEFT) coll__sim_left(r);
    else if (e.kind == COLL__SIM_NOTICE) coll__sim_notice(w, r);
    else coll__sim_strike_now(w, (coll__sim_strike *)e.what);
    return true;
}

/* ---- >>running all ranks ---- */

static void coll__sim_migration_go(coll__sim *w);

enum { COLL__GUARD_MOST = 8192, COLL__STACK_FEW = 256 << 10, COLL__STACK_MANY = 64 << 10 };

static bool coll__fiber_make(coll__sim *w, coll__fiber *f, unsigned char *stack, size_t guard)
{
#if defined(COLL__SIM_FIBERS)
    const uint64_t self = (uint64_t)(uintptr_t)w;

    if (guard) (void)mprotect(stack, guard, PROT_NONE);
    if (getcontext(&f->context)) return false;
    f->context.uc_stack.ss_sp = stack;
    f->context.uc_stack.ss_size = w->stack_each;
    f->context.uc_link = NULL;
    makecontext(&f->context, (void (*)(void))coll__fiber_main, 2, (unsigned)(self >> 32), (unsigned)self);
#if defined(COLL__SIM_TSAN)
    f->tsan = __tsan_create_fiber(0);
#endif
    return true;
#else
    (void)w, (void)f, (void)stack, (void)guard, (void)coll__fiber_main;
    return false;
#endif
}

/* One mapping for all stacks; only touched pages use memory.  The lowest page of each stack is a guard page, unless the kernel's
 * limit on mappings is near. */
static bool coll__fibers_make(coll__sim *w)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (size_t)w->places;
    size_t each = w->config.stack ? w->config.stack : w->places <= 1024 ? COLL__STACK_FEW : COLL__STACK_MANY;

#if defined(COLL__SIM_ASAN) || defined(COLL__SIM_TSAN)
    each *= 4;                                    /* the sanitizers' frames are larger                        */
#endif
    each = coll__round_up(coll__most(each, 4 * page), page) + page;
    w->stack_each = each;
    w->stacks_length = size * each;
    w->fibers = (coll__fiber *)coll__allocate(coll__like(w), size * sizeof *w->fibers);
    w->stacks = (unsigned char *)coll__reserve_stacks(w->stacks_length);
    if (!w->fibers || !w->stacks) return false;
#if defined(COLL__SIM_ASAN)
    __asan_unpoison_memory_region(w->stacks, w->stacks_length);
#elif defined(COLL__SIM_TSAN)
    w->scheduler.tsan = __tsan_get_current_fiber();
#endif
    const size_t guard = w->places <= COLL__GUARD_MOST ? page : 0;
    for (int i = 0; i < w->places; i++)
        if (!coll__fiber_make(w, &w->fibers[i], w->stacks + (size_t)i * each, guard)) return false;
    return true;
}

/* After the end of a world every rank continues, one after the other, and waits no more.  So each of them ends, or calls
 * coll_shrink. */
static void coll__sim_wind_up(coll__sim *w)
{
    for (int i = 0; i < w->places; i++) {
        const coll__fiber *f = &w->fibers[i];
        if (!f->is_over && !f->migration && f->role && f->role->state == COLL__SIM_SUSPENDED) coll__fiber_enter(f->role);
    }
}

/* The fiber of a rank begins at its time. */
static void coll__fiber_begin(coll__sim_rank *r)
{
    coll__fiber_suspend(r);
    r->world->fibers[r->place].newest = r;
    r->wake_at = r->clock;
    coll__sim_push(r->world, COLL__SIM_RUN, r->clock, r, r->generation);
}

/* Runs body(arg, rank) as a fiber for every rank, until each has returned, or was killed or stopped.  The caller then closes what
 * those have left open, while their stacks exist, and calls coll__sim_run_end. */
static coll_status coll__sim_run(coll__sim *w, void (*body)(void *arg, coll__sim_rank *rank), void *arg)
{
    w->holders++;
    if (!coll__fibers_make(w)) return COLL_ERR_MEMORY;
    w->body = body;
    w->arg = arg;
    w->live = w->size;
    for (int i = 0; i < w->size; i++) coll__fiber_begin(&w->ranks[i]);
    while (w->live > 0) {
        const uint64_t limit = UINT64_C(100000) + 100 * (uint64_t)w->live;
        if (w->waiting == w->live) coll__sim_end(w, &(coll_failure){ COLL_ERR_ABORTED, -1, "its ranks are in another world" });
        if (w->failure.status != COLL_OK) {
            coll__sim_wind_up(w);
            if (w->live > 0) coll__sim_migration_go(w);
        } else if (!coll__sim_step(w) || w->idle > limit) coll__sim_stuck(w);
    }
    return COLL_OK;
}

static void coll__sim_release(coll__sim *w);

static void coll__sim_run_end(coll__sim *w)
{
#if defined(COLL__SIM_TSAN)
    for (int i = 0; w->fibers && i < w->places; i++)
        if (w->fibers[i].tsan) __tsan_destroy_fiber(w->fibers[i].tsan);
#endif
    coll__give(w->fibers);
    if (w->stacks) munmap(w->stacks, w->stacks_length);
    w->fibers = NULL;
    w->stacks = NULL;
    coll__sim_release(w);
}

#endif /* COLL_SIM_FIBER_H */
