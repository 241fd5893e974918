/* run_key.h - part of coll-run.c: mutual proofs of the job's key, and hex digits. */
#ifndef RUN_KEY_H
#define RUN_KEY_H

#include "../core/base/coll_hmac.h"

enum { DIGEST = COLL__SHA_LENGTH, KEY_LEAST = 16, KEY_MOST = 1024, NONCE = 16 };

/* HMAC over a role and two texts, with their lengths, so that the input is unambiguous. */
static void prove(const char *key, const char *role, const struct bytes *one, const struct bytes *two,
                  unsigned char digest[DIGEST])
{
    char lengths[8];
    const struct iovec pieces[] = {
        { (void *)(uintptr_t)role, strlen(role) + 1 }, { lengths, sizeof lengths },
        { one->data, one->length }, { two->data, two->length }
    };

    put_be32(lengths, (uint32_t)one->length);
    put_be32(lengths + 4, (uint32_t)two->length);
    coll__hmac(digest, key, strlen(key), pieces, 4);
}

/* Write `length` bytes as hex digits; `text` has space for 2 * length + 1. */
static void to_hex(const unsigned char *bytes, size_t length, char *text)
{
    for (size_t i = 0; i < length; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

static bool is_same_proof(const char *theirs, const unsigned char digest[DIGEST])
{
    char ours[2 * DIGEST + 1];

    to_hex(digest, DIGEST, ours);
    return strlen(theirs) == 2 * DIGEST
        && coll__same_secret((const unsigned char *)theirs, (const unsigned char *)ours, 2 * DIGEST);
}

/* `length` random bytes (at most 64) as hex digits. */
static void random_hex(char *text, size_t length)
{
    unsigned char bytes[64];

    if (!coll__nonce(bytes, length)) die("no random numbers");
    to_hex(bytes, length, text);
}

#endif /* RUN_KEY_H */
