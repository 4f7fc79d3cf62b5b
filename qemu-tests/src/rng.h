/* SPDX-License-Identifier: GPL-2.0 */
/* Random numbers that a seed reproduces. */
#ifndef RNG_H
#define RNG_H

#include <stdint.h>

struct rng {
	uint64_t state;
};

static inline uint64_t next(struct rng *r)
{
	uint64_t x = r->state += 0x9e3779b97f4a7c15;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

/* A number from 0 to N - 1; 0 if N is 0. */
static inline uint64_t below(struct rng *r, uint64_t n)
{
	return n ? next(r) % n : 0;
}

/* Generator number WHICH of a seed. */
static inline struct rng rng_of(uint64_t seed, uint64_t which)
{
	struct rng r = { seed ^ which * 0xd6e8feb86659fd93 };

	next(&r);
	return r;
}

#endif
