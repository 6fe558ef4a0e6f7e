/* Seeded noise; see random.h. */
#include "mkmodel/random.h"

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t rotate(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

uint64_t random_bits(struct random *r)
{
    uint64_t *s = r->state;
    uint64_t result = rotate(s[0] + s[3], 23) + s[0];
    uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate(s[3], 45);
    return result;
}

void random_seed(struct random *r, uint64_t seed, const char *name, uint64_t row)
{
    /* Mix each part before the next is added, so that (seed 1, row 0) and (seed 0, row 1) differ.
     */
    uint64_t mix = splitmix(&seed);
    for (const char *c = name; *c; c++) {
        mix ^= (unsigned char)*c;
        mix = splitmix(&mix);
    }
    mix ^= row;
    for (int i = 0; i < 4; i++)
        r->state[i] = splitmix(&mix);
}

void random_bell(struct random *r, float mean, float deviation, float *out, size_t n)
{
    /* The sum of four uniform 16-bit numbers: mean 2 * 65535, variance 4 * (65536^2 - 1) / 12. */
    const float scale = deviation * (float)(1.7320508075688772 / 65536.0);
    for (size_t i = 0; i < n; i++) {
        uint64_t x = random_bits(r);
        int sum =
            (int)(x & 0xffff) + (int)(x >> 16 & 0xffff) + (int)(x >> 32 & 0xffff) + (int)(x >> 48);
        out[i] = mean + scale * (float)(sum - 2 * 65535);
    }
}
