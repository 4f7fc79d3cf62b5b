/* SPDX-License-Identifier: GPL-2.0 */
/* Measuring time. */
#ifndef TIMES_H
#define TIMES_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Seconds since an arbitrary moment. */
static inline double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static inline int times_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts the N times in TOOK, and prints their median and 99th percentile. */
static inline void print_times(double *took, int n)
{
	qsort(took, n, sizeof(*took), times_by_value);
	printf("median %.3f\np99 %.3f\n", took[n / 2], took[n * 99L / 100]);
}

#endif
