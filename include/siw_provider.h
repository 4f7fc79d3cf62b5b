/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What bindgen reads for rust/provider: the public headers of libibverbs, the commands of uverbs,
 * the user ABI of siw, and a few calls of libc.
 */

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "siw_uapi.h"
