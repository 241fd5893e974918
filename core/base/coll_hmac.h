/* coll_hmac.h - proof of a shared key: SHA-256, HMAC, nonces, comparison in constant time.
 *
 * SHA-256 is FIPS 180-4, HMAC is RFC 2104.  Both are written for review, not speed: a connection hashes a few hundred bytes.
 * The constants of SHA-256 are the first bits of fractions of roots of the first primes: square roots for the initial state,
 * cube roots for the rounds.
 *
 * It uses nothing else of the library except random bytes.  The launcher includes it, too. */
#ifndef COLL_HMAC_H
#define COLL_HMAC_H

#include "coll_features.h"

#if COLL__HAS_TCP                                 /* only TCP uses keys                                       */

#include "coll_system.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COLL__SHA_LENGTH = 32, COLL__SHA_BLOCK = 64, COLL__NONCE_LENGTH = 16 };

/* ---- >>SHA-256 ---- */

typedef struct coll__sha {
    uint32_t state[8];
    uint64_t length;                              /* bytes so far                                             */
    unsigned char block[COLL__SHA_BLOCK];         /* the bytes after the last full block                      */
} coll__sha;

static inline uint32_t coll__sha_rotate(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void coll__sha_block(coll__sha *sha, const unsigned char *bytes)
{
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2
    };
    uint32_t w[64], s[8];

    memset(w, 0, sizeof w);
    for (int i = 0; i < 64; i++) w[i / 4] = w[i / 4] << 8 | bytes[i];
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (coll__sha_rotate(a, 7) ^ coll__sha_rotate(a, 18) ^ a >> 3)
             + (coll__sha_rotate(b, 17) ^ coll__sha_rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, sha->state, sizeof s);
    for (int i = 0; i < 64; i++) {
        const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]), majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        const uint32_t mixed = coll__sha_rotate(s[4], 6) ^ coll__sha_rotate(s[4], 11) ^ coll__sha_rotate(s[4], 25);
        const uint32_t one = s[7] + mixed + choice + k[i] + w[i];
        const uint32_t two = (coll__sha_rotate(s[0], 2) ^ coll__sha_rotate(s[0], 13) ^ coll__sha_rotate(s[0], 22)) + majority;
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++) sha->state[i] += s[i];
}

static void coll__sha_begin(coll__sha *sha)
{
    *sha = (coll__sha){ .state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
                                   0x5be0cd19 } };
}

static void coll__sha_add(coll__sha *sha, const void *bytes, size_t length)
{
    const unsigned char *at = (const unsigned char *)bytes;

    while (length > 0) {
        const size_t used = (size_t)(sha->length % COLL__SHA_BLOCK), room = COLL__SHA_BLOCK - used;
        const size_t part = room < length ? room : length;
        memcpy(sha->block + used, at, part);
        sha->length += part;
        at += part;
        length -= part;
        if (used + part == COLL__SHA_BLOCK) coll__sha_block(sha, sha->block);
    }
}

/* Padding: a one bit, zeros, and the length in bits. */
static void coll__sha_end(coll__sha *sha, unsigned char *out)
{
    static const unsigned char padding[COLL__SHA_BLOCK] = { 0x80 };
    const uint64_t bits = sha->length * 8;
    unsigned char number[8];

    for (int i = 0; i < 8; i++) number[i] = (unsigned char)(bits >> (56 - 8 * i));
    coll__sha_add(sha, padding, 1 + (size_t)((COLL__SHA_BLOCK * 2 - 9 - sha->length % COLL__SHA_BLOCK) % COLL__SHA_BLOCK));
    coll__sha_add(sha, number, sizeof number);
    for (int i = 0; i < COLL__SHA_LENGTH; i++) out[i] = (unsigned char)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

/* ---- >>secrets ---- */

/* Clear a secret.  The compiler must not remove this. */
static void coll__wipe(void *at, size_t length)
{
    memset(at, 0, length);
    __asm__ volatile("" : : "r"(at) : "memory");
}

/* Unpredictable bytes. false: the system has none. */
static bool coll__nonce(unsigned char *out, size_t length) { return coll__random(out, length); }

/* Compares in time that does not depend on the difference. */
static bool coll__same_secret(const unsigned char *a, const unsigned char *b, size_t length)
{
    volatile unsigned char difference = 0;

    for (size_t i = 0; i < length; i++) difference = (unsigned char)(difference | (a[i] ^ b[i]));
    return difference == 0;
}

/* HMAC-SHA256 of the pieces, one after the other. */
static void coll__hmac(unsigned char *out, const void *key, size_t key_length, const struct iovec *pieces, int count)
{
    unsigned char pad[COLL__SHA_BLOCK] = { 0 };
    coll__sha sha;

    if (key_length > sizeof pad) {
        coll__sha_begin(&sha);
        coll__sha_add(&sha, key, key_length);
        coll__sha_end(&sha, pad);
    } else if (key_length > 0) {
        memcpy(pad, key, key_length);
    }
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36;
    coll__sha_begin(&sha);
    coll__sha_add(&sha, pad, sizeof pad);
    for (int i = 0; i < count; i++) coll__sha_add(&sha, pieces[i].iov_base, pieces[i].iov_len);
    coll__sha_end(&sha, out);
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36 ^ 0x5c;
    coll__sha_begin(&sha);
    coll__sha_add(&sha, pad, sizeof pad);
    coll__sha_add(&sha, out, COLL__SHA_LENGTH);
    coll__sha_end(&sha, out);
    coll__wipe(pad, sizeof pad);
    coll__wipe(&sha, sizeof sha);
}

/* ---- >>key files ---- */

/* The rule of ssh: a key file belongs to the user of this process or to root, and gives others no rights.  Two exceptions: root
 * may use a file of any owner (containers often run as root), and the group of a file that belongs to root may read it (mounted
 * secrets).  Returns NULL if the file follows the rule, else what is wrong with it and what helps. */
static const char *coll__key_file_fault(const struct stat *about, uid_t user)
{
    const mode_t rights = about->st_mode & 0777;

    if (about->st_uid != user && about->st_uid != 0 && user != 0)
        return "it belongs to another user; a key file has to be one's own, or root's";
    if (about->st_uid == 0)
        return rights & 037 ? "it is root's, and more than root and readers of its group may use it: chmod 640" : NULL;
    return rights & 077 ? "users other than its owner may use it: chmod 600" : NULL;
}

#endif /* COLL__HAS_TCP */
#endif /* COLL_HMAC_H */
