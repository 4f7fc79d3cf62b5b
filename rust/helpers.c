// SPDX-License-Identifier: GPL-2.0

#include "siw_helpers.h"

bool siw_helper_rdma_is_kernel_res(const struct rdma_restrack_entry *res)
{
	return rdma_is_kernel_res(res);
}

#include "helpers/net.c"
