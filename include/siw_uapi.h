/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * The interface with the library in user space: that of C siw, and this driver's additions.
 *
 * A library asks for additions when it opens a device, and uses those that the answer names.
 * C siw ignores the request, and answers with zero in the field pad.
 */
#ifndef SIW_UAPI_H
#define SIW_UAPI_H

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/siw-abi.h>

/* The driver's part of GET_CONTEXT. The answer is in siw_uresp_alloc_ctx.pad. */
struct siw_ureq_alloc_ctx {
	__u32 want;
	__u32 reserved;
};

/*
 * The driver's answer to UVERBS_METHOD_QUERY_CONTEXT, a struct siw_uresp_alloc_ctx again: for a
 * library that finds the context open, because the program imports it. C siw has no such method.
 */
enum siw_query_context_attrs {
	SIW_ATTR_QUERY_CONTEXT_RESP = 1U << UVERBS_ID_NS_SHIFT,
};

enum siw_feature {
	/*
	 * Memory windows: SIW_OP_BIND_MW, and SIW_OP_INVAL_STAG for windows of type 2.
	 *
	 * The element of a bind has the window's new key in rkey, the length in raddr, and in the
	 * first of its sge the address in laddr, the access flags in length, and the region's key
	 * in lkey. num_sge is 1. The element of an invalidation has the key in rkey.
	 */
	SIW_FEATURE_WINDOWS = 0x1,

	/*
	 * The extensions of RFC 7306: SIW_OP_WRITE_WITH_IMM, SIW_OP_SEND_WITH_IMM,
	 * SIW_OP_FETCH_AND_ADD, SIW_OP_COMP_AND_SWAP.
	 *
	 * Immediate data is in lkey of the last of the element's sge, which is not part of the
	 * payload. With SIW_WQE_INLINE that is the first one, and num_sge is 1.
	 *
	 * The element of an atomic operation has the target in raddr and rkey. The first of its sge
	 * is the buffer for the old value, 8 bytes. laddr of the second is the value to add or to
	 * compare with, and laddr of the third, of SIW_OP_COMP_AND_SWAP alone, the new value.
	 *
	 * Completions have immediate data in the low half of imm_data, and SIW_WQE_WITH_IMM in
	 * flags: SIW_OP_RECEIVE for a Send, SIW_OP_RECV_RDMA_IMM for a Write. The statuses from
	 * SIW_WC_REM_OP_ERR on turn up.
	 */
	SIW_FEATURE_RFC7306 = 0x2,

	/* Shared receive queues can be resized: siw_ureq_modify_srq. */
	SIW_FEATURE_RESIZE_SRQ = 0x4,
};

/* The driver's part of the response to RESIZE_CQ. */
struct siw_uresp_resize_cq {
	__u32 num_cqe;
	__u32 reserved;
	/* The offset to map of a new queue, which is empty. The one before gets no more entries. */
	__aligned_u64 cq_key;
};

/*
 * The driver's part of MODIFY_SRQ, needed for IB_SRQ_MAX_WR: where the answer goes, because the
 * command has none.
 */
struct siw_ureq_modify_srq {
	__aligned_u64 response;
};

struct siw_uresp_modify_srq {
	__u32 num_rqe;
	/* The new queue has as many elements of the old one, from index 0 on. */
	__u32 put;
	__aligned_u64 srq_key;
};

enum {
	SIW_OP_BIND_MW = SIW_NUM_OPCODES,
	SIW_OP_WRITE_WITH_IMM,
	SIW_OP_RECV_RDMA_IMM,
};

enum {
	SIW_WQE_WITH_IMM = 1 << 7,
};

enum {
	SIW_WC_MW_BIND_ERR = SIW_NUM_WC_STATUS,
	SIW_WC_REM_OP_ERR,
	SIW_WC_RETRY_EXC_ERR,
};

/*
 * An access flag of regions and windows, in the range that other drivers ignore: the end of the
 * first message of a peer that names the region or the window invalidates it.
 */
#define SIW_ACCESS_ONE_TOUCH 0x20000000

#endif
