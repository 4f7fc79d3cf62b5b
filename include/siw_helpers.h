/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C that Rust cannot call by itself: inline functions and macros, each behind a
 * function of rust/helpers.c. Only rust/kapi calls them.
 */
#ifndef SIW_HELPERS_H
#define SIW_HELPERS_H

#include "siw_helpers_net.h"
#include "siw_helpers_rdma.h"

#endif
