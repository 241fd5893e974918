/* pages.h - what the pages about splitting the model share: leaving at the first error, memory by a table, a batch of letters. */
#ifndef GPT_PAGES_H
#define GPT_PAGES_H

#include "trainer.h"

#define TRY(call) do { const coll_status try_ = (call); if (try_) return try_; } while (0)

/* Wait for a request, if there is one, and free it. */
static inline coll_status gpt_finish(coll_request **request)
{
    const coll_status status = coll_wait(*request);

    coll_request_free(*request);
    *request = NULL;
    return status;
}

/* The number of floats, and the pointer to them. */
typedef struct gpt_want { float **at; int kind; size_t count; } gpt_want;

/* Whether there was memory for all of them. */
static inline bool gpt_want_all(gpt_trainer *t, const gpt_want *wants, size_t count)
{
    for (size_t i = 0; i < count; i++) if (!(*wants[i].at = gpt_floats(t, wants[i].kind, wants[i].count))) return false;
    return true;
}

/* What a rank reads in a step: some of the sequences of the batch, one after the other. */
typedef struct gpt_page_of_text { uint8_t *letters, *targets; int sequences; } gpt_page_of_text;

/* Room for so many. */
static inline bool gpt_open_text(gpt_trainer *t, gpt_page_of_text *page, int sequences)
{
    const size_t letters = (size_t)sequences * (size_t)t->shape.context;

    page->letters = gpt_bytes(t, GPT_OTHER, letters);
    page->targets = gpt_bytes(t, GPT_OTHER, letters);
    return page->letters && page->targets;
}

static inline void gpt_read_text(const gpt_trainer *t, gpt_page_of_text *page, int step, gpt_part part)
{
    page->sequences = part.end - part.begin;
    for (int i = 0; i < page->sequences; i++)
        gpt_sequence(t, step, part.begin + i, page->letters + i * t->shape.context, page->targets + i * t->shape.context);
}

#endif /* GPT_PAGES_H */
