/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What bindgen reads for rust/uapi.
 */

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/siw-abi.h>
