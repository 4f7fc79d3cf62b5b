/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM siw

#if !defined(_TRACE_SIW_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_SIW_H

#include <linux/tracepoint.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <rdma/siw-abi.h>
#include <trace/misc/rdma.h>

/* The steps of a connection: `Step` of the driver's connection management. */
#define siw_show_step(step)					\
	__print_symbolic(step,					\
			 { 1, "CONNECT" },			\
			 { 2, "REQUEST" },			\
			 { 3, "OFFER" },			\
			 { 4, "ACCEPT" },			\
			 { 5, "UP" },				\
			 { 6, "TEARDOWN" },			\
			 { 7, "CLOSED" })

/* What a completion says of its work request. */
#define SIW_OP_LIST						\
	siw_op(WRITE)						\
	siw_op(READ)						\
	siw_op(READ_LOCAL_INV)					\
	siw_op(SEND)						\
	siw_op(SEND_REMOTE_INV)					\
	siw_op(RECEIVE)						\
	siw_op(INVAL_STAG)					\
	siw_op_end(REG_MR)

#undef siw_op
#undef siw_op_end
#define siw_op(x)	TRACE_DEFINE_ENUM(SIW_OP_##x);
#define siw_op_end(x)	TRACE_DEFINE_ENUM(SIW_OP_##x);

SIW_OP_LIST

#undef siw_op
#undef siw_op_end
#define siw_op(x)	{ SIW_OP_##x, #x },
#define siw_op_end(x)	{ SIW_OP_##x, #x }

#define siw_show_op(op)	__print_symbolic(op, SIW_OP_LIST)

#define siw_show_layer(layer)					\
	__print_symbolic(layer,					\
			 { 0, "RDMAP" },			\
			 { 1, "DDP" },				\
			 { 2, "MPA" })

/*
 * Layer, error type and error code as digits: RFC 5040, 4.8; RFC 5041, 8.2;
 * RFC 5044, 8; RFC 6581, 9.
 */
#define siw_show_error(layer, etype, code)				\
	__print_symbolic((layer) << 16 | (etype) << 8 | (code),		\
			 { 0x00000, "local catastrophic error" },	\
			 { 0x00100, "invalid STag" },			\
			 { 0x00101, "base or bounds violation" },	\
			 { 0x00102, "access rights violation" },	\
			 { 0x00103, "STag not associated with stream" }, \
			 { 0x00104, "TO wrap" },			\
			 { 0x00109, "STag cannot be invalidated" },	\
			 { 0x001ff, "unspecified protection error" },	\
			 { 0x00205, "invalid RDMAP version" },		\
			 { 0x00206, "unexpected opcode" },		\
			 { 0x00207, "catastrophic error of stream" },	\
			 { 0x00208, "catastrophic error" },		\
			 { 0x00209, "STag cannot be invalidated" },	\
			 { 0x002ff, "unspecified operation error" },	\
			 { 0x10000, "local catastrophic error" },	\
			 { 0x10100, "invalid STag" },			\
			 { 0x10101, "base or bounds violation" },	\
			 { 0x10102, "STag not associated with stream" }, \
			 { 0x10103, "TO wrap" },			\
			 { 0x10104, "invalid DDP version" },		\
			 { 0x10201, "invalid queue number" },		\
			 { 0x10202, "no buffer available" },		\
			 { 0x10203, "MSN out of range" },		\
			 { 0x10204, "invalid message offset" },		\
			 { 0x10205, "message too long for buffer" },	\
			 { 0x10206, "invalid DDP version" },		\
			 { 0x20001, "TCP connection lost" },		\
			 { 0x20002, "CRC error" },			\
			 { 0x20003, "marker and length mismatch" },	\
			 { 0x20004, "invalid request or reply frame" },	\
			 { 0x20005, "local catastrophic error" },	\
			 { 0x20006, "insufficient IRD" },		\
			 { 0x20007, "no matching RTR" })

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
	TP_printk("qp %u step %s status %d", __entry->qpn,
		  siw_show_step(__entry->step), __entry->status)
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
	TP_printk("qp %u wr_id 0x%llx opcode %s status %s", __entry->qpn,
		  __entry->wr_id, siw_show_op(__entry->opcode),
		  rdma_show_wc_status(__entry->status))
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
	TP_printk("qp %u %s layer %s type %u code %u: %s", __entry->qpn,
		  __entry->rx ? "received" : "sent",
		  siw_show_layer(__entry->layer), __entry->etype,
		  __entry->code, siw_show_error(__entry->layer, __entry->etype,
						__entry->code))
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH trace
#include <trace/define_trace.h>
