/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C that Rust cannot call by itself: inline functions and macros, each behind a
 * function of rust/helpers.c.
 */
#ifndef KAPI_HELPERS_H
#define KAPI_HELPERS_H

#include "kapi_helpers_net.h"
#include "kapi_helpers_rdma.h"

#endif
