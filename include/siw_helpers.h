/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C that Rust cannot call by itself: inline functions and macros, each behind a
 * function of rust/helpers.c. Only rust/kapi calls them.
 */
#ifndef SIW_HELPERS_H
#define SIW_HELPERS_H

#include <rdma/restrack.h>

#include "siw_helpers_net.h"

bool siw_helper_rdma_is_kernel_res(const struct rdma_restrack_entry *res);

#endif
