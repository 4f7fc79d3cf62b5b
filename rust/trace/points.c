// SPDX-License-Identifier: GPL-2.0
/* The tracepoints, and the functions that rust/trace/lib.rs calls to hit them. */

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "trace/siw.h"
