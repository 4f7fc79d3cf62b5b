// SPDX-License-Identifier: GPL-2.0

#include "kapi_helpers.h"

#include "helpers/net.c"
#include "helpers/rdma.c"
