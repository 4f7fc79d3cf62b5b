// SPDX-License-Identifier: GPL-2.0

#include "siw_helpers.h"

#include "helpers/net.c"
#include "helpers/rdma.c"
