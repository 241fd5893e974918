/* coll_outcome.h - the outcome of a failure: all members get one status and one sentence, which name the same member.
 *
 * The first failure that member 0 detects or receives is the decision.  It sends that to all, and the deaths after it.  Another
 * member reports what it detects, and waits.  If member 0 has left or is dead, what a member detects is its decision.
 *
 * If member 0 was stopped, and others have declared it dead, their decisions and the ends of their lines arrive in any order.
 * The decision then is that member 0 is dead, unless the program has an earlier one. */
#ifndef COLL_OUTCOME_H
#define COLL_OUTCOME_H

#include "coll_detector.h"
#include "../base/coll_text.h"

/* "rank 2 (hostB, pid 4711)" */
typedef const char *coll__name_fn(const void *names, int member, char *text, size_t room);

typedef struct coll__outcome {
    coll__detector *detector;
    coll__name_fn  *name;
    const void     *names;
    coll_failure    decision, report;             /* report: sent to member 0                                 */
    bool            is_asking, is_taken;          /* the program waits for the decision; it has it            */
} coll__outcome;

/* Detected here, or decided by a member; reported by a member that waits for the decision; decided by member 0; a member never
 * came, and may come into the next world. */
typedef enum coll__failure_source {
    COLL__FROM_MEMBER, COLL__FROM_REPORT, COLL__FROM_FIRST, COLL__FROM_START
} coll__failure_source;

enum { COLL__NAME_ROOM = 160 };

/* ---- >>which failure counts ---- */

/* Returns whether it is the decision from now on. */
static bool coll__outcome_decide(coll__outcome *o, const coll_failure *failure, coll__failure_source source, int64_t now)
{
    coll__detector *const d = o->detector;
    const bool gives_up = d->me == 0 && failure->rank == 0 && source == COLL__FROM_MEMBER && !o->is_taken
                       && coll__detector_slept(d, now);
    const bool is_first = o->decision.status == COLL_OK || gives_up;
    const bool is_death = (failure->status == COLL_ERR_PEER || failure->status == COLL_ERR_TIMEOUT) && failure->rank >= 0
                       && source != COLL__FROM_START;

    if (is_death && (is_first || source == COLL__FROM_FIRST)) (void)coll__members_add(&d->dead, failure->rank);
    if (is_first) o->decision = *failure;
    return is_first;
}

/* This member has detected a failure, which member 0 decides while it is there.  Returns whether something is to be sent. */
static bool coll__outcome_report(coll__outcome *o, const coll_failure *cause, int64_t now)
{
    if (o->decision.status != COLL_OK) return false;
    if (o->detector->me == 0 || o->detector->left.has[0]) return coll__outcome_decide(o, cause, COLL__FROM_MEMBER, now);
    if (o->report.status != COLL_OK) return false;
    o->report = *cause;
    return true;
}

/* A member has left.  If it is member 0, without a decision on the report, and the program does not wait, the report is it. */
static bool coll__outcome_left(coll__outcome *o, int64_t now)
{
    return o->report.status != COLL_OK && !o->is_asking && coll__outcome_report(o, &o->report, now);
}

/* Until when this member waits for a decision on its report: until `deadline` for member 0, and without it until `soon` for the
 * suspect, which may have failed itself, and be about to send why. */
static int64_t coll__outcome_until(const coll__outcome *o, int suspect, int64_t began, int64_t soon, int64_t deadline)
{
    const coll__detector *const d = o->detector;
    const bool may_send = d->me != 0 && d->left.has[0] && d->timeout > 0 && suspect > 0 && suspect != d->me
                       && !d->left.has[suspect] && !d->dead.has[suspect];

    return d->me != 0 && d->lines[0].is_up && !d->left.has[0] ? deadline : may_send ? soon : began;
}

/* ---- >>sentences ---- */

/* "rank 2 (hostB, ...) is gone" */
static void coll__failed_member(const coll__outcome *o, coll_failure *failure, coll_status status, int member, const char *what)
{
    char who[COLL__NAME_ROOM];

    coll__set_failure(failure, status, member, "%s %s", o->name(o->names, member, who, sizeof who), what);
}

/* "the link between rank 0 (...) and rank 3 (...) is silent: no answer for 5 s" */
static void coll__failed_link(const coll__outcome *o, coll_failure *failure, int suspect, const char *rest)
{
    const int me = o->detector->me;
    char one[COLL__NAME_ROOM], two[COLL__NAME_ROOM];

    coll__set_failure(failure, COLL_ERR_PEER, suspect, "the link between %s and %s is silent: no answer for %.3g s%s",
                      o->name(o->names, me < suspect ? me : suspect, one, sizeof one),
                      o->name(o->names, me < suspect ? suspect : me, two, sizeof two), (double)o->detector->timeout * 1e-9, rest);
}

/* `first` is silent, and `count` members are with it.  is_unanswered: so is its host, or the link to it. */
static void coll__failed_silent(const coll__outcome *o, coll_failure *failure, int first, int count, bool is_unanswered)
{
    const coll__detector *const d = o->detector;
    char what[160], others[80] = "", rest[100] = "";

    d->dead.has[first] = 2 * count > d->size;     /* otherwise the sentence begins with it                    */
    coll__append_ranks(others, sizeof others, d->dead.has, d->size);
    d->dead.has[first] = true;
    if (2 * count > d->size) {
        coll__print(what, sizeof what, "is cut off: no heartbeat from ranks %s for %.3g s", others, (double)d->timeout * 1e-9);
        coll__failed_member(o, failure, COLL_ERR_PEER, 0, what);
        return;
    }
    if (count > 1) coll__print(rest, sizeof rest, ", nor %s rank%s %s", is_unanswered ? "from" : count == 2 ? "has" : "have",
                               count == 2 ? "" : "s", others);
    coll__print(what, sizeof what, "has sent no heartbeat for %.3g s%s", (double)d->timeout * 1e-9, rest);
    if (is_unanswered) coll__failed_link(o, failure, first, rest);
    else coll__failed_member(o, failure, COLL_ERR_PEER, first, what);
}

#endif /* COLL_OUTCOME_H */
