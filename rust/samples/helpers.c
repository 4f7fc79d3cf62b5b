// SPDX-License-Identifier: GPL-2.0
/* The helpers of rust/kapi, for a module of their own. */

#include "../helpers.c"
