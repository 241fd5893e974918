/* run_key.h - part of coll-run.c: SHA-256 (FIPS 180-4) and HMAC (RFC 2104), by which launchers prove
 * to each other that they know the key of the job, and hex digits.
 */
#ifndef RUN_KEY_H
#define RUN_KEY_H

enum { DIGEST = 32, KEY_LEAST = 16, NONCE = 16 };

struct sha256 {
    uint32_t state[8];
    unsigned char block[64];
    uint64_t length;
};

static uint32_t rotate_right(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

static void sha256_block(struct sha256 *s)
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
    uint32_t w[64], v[8];

    for (int i = 0; i < 16; i++) w[i] = get_be32((const char *)s->block + 4 * i);
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate_right(a, 7) ^ rotate_right(a, 18) ^ a >> 3) + w[i - 7]
             + (rotate_right(b, 17) ^ rotate_right(b, 19) ^ b >> 10);
    }
    memcpy(v, s->state, sizeof v);
    for (int i = 0; i < 64; i++) {
        const uint32_t a = v[0], e = v[4];
        const uint32_t one = v[7] + (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25))
                           + ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
        const uint32_t two = (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22))
                           + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++) s->state[i] += v[i];
}

static void sha256_begin(struct sha256 *s)
{
    *s = (struct sha256){ .state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 } };
}

static void sha256_add(struct sha256 *s, const void *data, size_t length)
{
    const unsigned char *at = data;

    for (; length > 0; length--) {
        s->block[s->length++ % 64] = *at++;
        if (s->length % 64 == 0) sha256_block(s);
    }
}

static void sha256_end(struct sha256 *s, unsigned char digest[DIGEST])
{
    const uint64_t bits = s->length * 8;
    char number[8];

    sha256_add(s, "\200", 1);
    while (s->length % 64 != 56) sha256_add(s, "", 1);
    put_be32(number, (uint32_t)(bits >> 32));
    put_be32(number + 4, (uint32_t)bits);
    sha256_add(s, number, 8);
    for (int i = 0; i < 8; i++) put_be32((char *)digest + 4 * i, s->state[i]);
}

/* HMAC over a role and two texts, with lengths, so that no two triples look alike. */
static void prove(const char *key, const char *role, const struct bytes *one, const struct bytes *two,
                  unsigned char digest[DIGEST])
{
    unsigned char pad[64] = { 0 };
    char lengths[8];
    struct sha256 s;

    if (strlen(key) > sizeof pad) {
        sha256_begin(&s);
        sha256_add(&s, key, strlen(key));
        sha256_end(&s, pad);
    } else {
        memcpy(pad, key, strlen(key));
    }
    put_be32(lengths, (uint32_t)one->length);
    put_be32(lengths + 4, (uint32_t)two->length);
    for (int i = 0; i < 64; i++) pad[i] ^= 0x36;
    sha256_begin(&s);
    sha256_add(&s, pad, sizeof pad);
    sha256_add(&s, role, strlen(role) + 1);
    sha256_add(&s, lengths, sizeof lengths);
    sha256_add(&s, one->data, one->length);
    sha256_add(&s, two->data, two->length);
    sha256_end(&s, digest);
    for (int i = 0; i < 64; i++) pad[i] ^= 0x36 ^ 0x5c;
    sha256_begin(&s);
    sha256_add(&s, pad, sizeof pad);
    sha256_add(&s, digest, DIGEST);
    sha256_end(&s, digest);
}

/* `length` bytes as hex digits; `text` has room for 2 * length + 1. */
static void to_hex(const unsigned char *bytes, size_t length, char *text)
{
    for (size_t i = 0; i < length; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

/* Compares every character, whatever the first ones are: the time tells nothing. */
static bool is_same_proof(const char *theirs, const unsigned char digest[DIGEST])
{
    char ours[2 * DIGEST + 1];
    unsigned char differ = 0;

    to_hex(digest, DIGEST, ours);
    if (strlen(theirs) != 2 * DIGEST) return false;
    for (int i = 0; i < 2 * DIGEST; i++) differ |= (unsigned char)(theirs[i] ^ ours[i]);
    return differ == 0;
}

/* `length` random bytes (at most 64) as hex digits. */
static void random_hex(char *text, size_t length)
{
    unsigned char bytes[64];

    if (getrandom(bytes, length, 0) != (ssize_t)length) die("no random numbers");
    to_hex(bytes, length, text);
}

#endif /* RUN_KEY_H */
