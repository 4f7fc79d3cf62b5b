/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
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
};

enum {
	SIW_OP_BIND_MW = SIW_NUM_OPCODES,
};

enum {
	SIW_WC_MW_BIND_ERR = SIW_NUM_WC_STATUS,
};

/*
 * An access flag of regions and windows, in the range that other drivers ignore: the end of the
 * first message of a peer that names the region or the window invalidates it.
 */
#define SIW_ACCESS_ONE_TOUCH 0x20000000

#endif
