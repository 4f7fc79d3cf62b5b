/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM siw

#if !defined(_TRACE_SIW_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_SIW_H

#include <linux/tracepoint.h>

TRACE_EVENT(siw_connect,
	TP_PROTO(u32 qpn, u32 step, int status),
	TP_ARGS(qpn, step, status),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, step)
		__field(int, status)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->step = step;
		__entry->status = status;
	),
	TP_printk("qp %u step %u status %d",
		  __entry->qpn, __entry->step, __entry->status)
);

TRACE_EVENT(siw_send,
	TP_PROTO(u32 qpn, u32 fpdus, u32 bytes, u32 accepted),
	TP_ARGS(qpn, fpdus, bytes, accepted),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, fpdus)
		__field(u32, bytes)
		__field(u32, accepted)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->fpdus = fpdus;
		__entry->bytes = bytes;
		__entry->accepted = accepted;
	),
	TP_printk("qp %u fpdus %u bytes %u accepted %u", __entry->qpn,
		  __entry->fpdus, __entry->bytes, __entry->accepted)
);

TRACE_EVENT(siw_place,
	TP_PROTO(u32 qpn, u32 stag, u64 to, u32 len),
	TP_ARGS(qpn, stag, to, len),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, stag)
		__field(u64, to)
		__field(u32, len)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->stag = stag;
		__entry->to = to;
		__entry->len = len;
	),
	TP_printk("qp %u stag 0x%08x to 0x%llx len %u", __entry->qpn,
		  __entry->stag, __entry->to, __entry->len)
);

TRACE_EVENT(siw_complete,
	TP_PROTO(u32 qpn, u64 wr_id, u8 opcode, u32 status),
	TP_ARGS(qpn, wr_id, opcode, status),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u64, wr_id)
		__field(u8, opcode)
		__field(u32, status)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->wr_id = wr_id;
		__entry->opcode = opcode;
		__entry->status = status;
	),
	TP_printk("qp %u wr_id 0x%llx opcode %u status %u", __entry->qpn,
		  __entry->wr_id, __entry->opcode, __entry->status)
);

TRACE_EVENT(siw_terminate,
	TP_PROTO(u32 qpn, bool rx, u8 layer, u8 etype, u8 code),
	TP_ARGS(qpn, rx, layer, etype, code),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(bool, rx)
		__field(u8, layer)
		__field(u8, etype)
		__field(u8, code)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->rx = rx;
		__entry->layer = layer;
		__entry->etype = etype;
		__entry->code = code;
	),
	TP_printk("qp %u %s layer %u type %u code %u", __entry->qpn,
		  __entry->rx ? "received" : "sent", __entry->layer,
		  __entry->etype, __entry->code)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH trace
#include <trace/define_trace.h>
