// SPDX-License-Identifier: GPL-2.0
/* The tracepoints, and what rust/kapi/trace.rs calls to hit them. */

#define CREATE_TRACE_POINTS
#include "trace/siw.h"

#include "kapi_helpers.h"

void siw_helper_trace_connect(u32 qpn, u32 step, int status)
{
	trace_siw_connect(qpn, step, status);
}

void siw_helper_trace_send(u32 qpn, u32 fpdus, u32 bytes, u32 accepted)
{
	trace_siw_send(qpn, fpdus, bytes, accepted);
}

void siw_helper_trace_place(u32 qpn, u32 stag, u64 to, u32 len)
{
	trace_siw_place(qpn, stag, to, len);
}

void siw_helper_trace_complete(u32 qpn, u64 wr_id, u8 opcode, u32 status)
{
	trace_siw_complete(qpn, wr_id, opcode, status);
}

void siw_helper_trace_terminate(u32 qpn, bool rx, u8 layer, u8 etype, u8 code)
{
	trace_siw_terminate(qpn, rx, layer, etype, code);
}
