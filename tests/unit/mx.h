/* mx.h - the microscaled formats by their definition (OCP Microscaling Formats 1.0), in double, one group at a time, and what
 * a wire of any type makes of a vector.  Nothing here calls the library.  Used after model.h. */
#ifndef MX_H
#define MX_H

enum { MX_GROUP = 32 };

typedef struct mx_format {
    coll_type type;
    int exponent;                                 /* of the largest element                                   */
    int lowest, fraction_bits;                    /* of the normal elements; integers: INT_MIN and of the units */
    double largest;
} mx_format;

static const mx_format mx_formats[] = {
    { COLL_MXI8, 0, 0, 6, 127.0 / 64 },           /* every element is a whole number of 2^-6                  */
    { COLL_MXF8E4M3, 8, -6, 3, 448 },
    { COLL_MXF8E5M2, 15, -14, 2, 57344 }
};

SUPPORT const mx_format *mx_format_of(coll_type type)
{
    for (size_t i = 0; i < sizeof mx_formats / sizeof *mx_formats; i++)
        if (mx_formats[i].type == type) return &mx_formats[i];
    return NULL;
}

/* The element nearest to v, ties to even, no larger than the largest. */
SUPPORT double mx_element(const mx_format *f, double v)
{
    const double magnitude = fabs(v);
    int exponent = f->lowest;

    if (magnitude == 0) return f->type == COLL_MXI8 ? 0 : v;
    if (f->type != COLL_MXI8 && ilogb(magnitude) > exponent) exponent = ilogb(magnitude);
    const double unit = ldexp(1, exponent - f->fraction_bits), whole = nearbyint(magnitude / unit) * unit;
    const double near = whole > f->largest ? f->largest : whole;
    return f->type == COLL_MXI8 && near == 0 ? 0 : signbit(v) ? -near : near;
}

/* The byte of an element. */
SUPPORT unsigned char mx_byte(const mx_format *f, double element)
{
    const int sign = signbit(element) ? 0x80 : 0;
    const double magnitude = fabs(element);

    if (f->type == COLL_MXI8) return (unsigned char)(int)(element * 64);
    if (magnitude < ldexp(1, f->lowest)) return (unsigned char)(sign | (int)ldexp(magnitude, f->fraction_bits - f->lowest));
    const int exponent = ilogb(magnitude), fraction = (int)ldexp(magnitude, f->fraction_bits - exponent);
    return (unsigned char)(sign | (((exponent - f->lowest) << f->fraction_bits) + fraction));
}

/* n <= 32 numbers, as the wire has them (1 + n bytes) and as another rank sees them; either may be NULL.  What is beyond the
 * range of f32 counts as infinite. */
SUPPORT void mx_group(const mx_format *f, const double *x, size_t n, unsigned char *bytes, double *seen)
{
    double largest = 0;
    bool is_finite = true;
    int scale = -127;

    for (size_t i = 0; i < n; i++) {
        is_finite = is_finite && isfinite((float)x[i]);
        largest = fmax(largest, fabs(x[i]));
    }
    if (is_finite && largest > 0 && ilogb(largest) - f->exponent > scale) scale = ilogb(largest) - f->exponent;
    if (bytes) bytes[0] = (unsigned char)(is_finite ? scale + 127 : 0xff);
    for (size_t i = 0; i < n; i++) {
        const double element = is_finite ? mx_element(f, ldexp(x[i], -scale)) : 0;
        if (bytes) bytes[1 + i] = mx_byte(f, element);
        if (seen) seen[i] = is_finite ? ldexp(element, scale) : (double)NAN;
    }
}

/* The bytes of n numbers from the beginning of a group on; returns how many. */
SUPPORT size_t mx_pack(coll_type wire, const double *x, size_t n, unsigned char *bytes)
{
    size_t length = 0;

    for (size_t i = 0; i < n; i += MX_GROUP) {
        const size_t part = n - i < MX_GROUP ? n - i : MX_GROUP;
        mx_group(mx_format_of(wire), x + i, part, bytes + length, NULL);
        length += 1 + part;
    }
    return length;
}

/* What a rank that gets x over a wire of any type of floats adds up. */
SUPPORT void mx_seen(coll_type wire, const double *x, size_t n, double *seen)
{
    const mx_format *f = mx_format_of(wire);
    const model_type plain = model_type_of(wire);

    for (size_t i = 0; i < n; i += MX_GROUP) {
        const size_t part = n - i < MX_GROUP ? n - i : MX_GROUP;
        if (f) mx_group(f, x + i, part, NULL, seen + i);
        for (size_t k = i; !f && k < i + part; k++) seen[k] = model_value(&plain.part, model_bits(&plain.part, x[k], false));
    }
}

/* The same as elements of the user's type.  A group that does not fit into f16 as a whole is NaN there, and what is too small
 * for f16 is +0. */
SUPPORT void mx_result(coll_type wire, coll_type type, const double *x, size_t n, double *result)
{
    const model_type user = model_type_of(type);

    mx_seen(wire, x, n, result);
    for (size_t i = 0; i < n; i += MX_GROUP) {
        const size_t end = n - i < MX_GROUP ? n : i + MX_GROUP;
        bool fits = true;
        for (size_t k = i; k < end; k++)
            fits = fits && !(type == COLL_F16 && mx_format_of(wire) && fabs(result[k]) >= 65520);
        for (size_t k = i; k < end; k++) {
            if (fits && type == COLL_F16 && mx_format_of(wire) && result[k] < 0 && result[k] >= ldexp(-1, -25)) result[k] = 0;
            else result[k] = fits ? model_value(&user.part, model_bits(&user.part, result[k], false)) : (double)NAN;
        }
    }
}

#endif /* MX_H */
