/* SPDX-License-Identifier: GPL-2.0 */
/* How a test program ends when a check fails. */
#ifndef MUST_H
#define MUST_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef DIE_STATUS
#define DIE_STATUS 1
#endif

#define give_up(status, ...)                                             \
	do {                                                             \
		flockfile(stderr); /* one failing thread prints */       \
		fprintf(stderr, "%s:%d: ", __func__, __LINE__);          \
		fprintf(stderr, __VA_ARGS__);                            \
		fprintf(stderr, "\n");                                   \
		exit(status);                                            \
	} while (0)
#define die(...) give_up(DIE_STATUS, __VA_ARGS__)

/* Fails unless the call WHAT returns 0. */
#define must(what)                                                       \
	do {                                                             \
		int rc_ = (what);                                        \
		if (rc_)                                                 \
			die("%s: %d, %s", #what, rc_, strerror(errno));  \
	} while (0)

#endif
