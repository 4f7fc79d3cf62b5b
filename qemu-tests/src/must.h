/* SPDX-License-Identifier: GPL-2.0 */
/* How a test program ends that finds something not as it must be. */
#ifndef MUST_H
#define MUST_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define die(...)                                                         \
	do {                                                             \
		flockfile(stderr); /* of several threads that fail, one tells */ \
		fprintf(stderr, "%s:%d: ", __func__, __LINE__);          \
		fprintf(stderr, __VA_ARGS__);                            \
		fprintf(stderr, "\n");                                   \
		exit(1);                                                 \
	} while (0)

/* WHAT gives 0, as calls that succeed do. */
#define must(what)                                                       \
	do {                                                             \
		int rc_ = (what);                                        \
		if (rc_)                                                 \
			die("%s: %d, %s", #what, rc_, strerror(errno));  \
	} while (0)

#endif
