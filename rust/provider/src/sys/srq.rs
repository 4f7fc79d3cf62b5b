// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Shared receive queues.

use super::{
    abi::feature,
    bindings::{
        ib_uverbs_create_srq,
        ib_uverbs_create_srq_resp,
        ib_uverbs_modify_srq,
        ib_uverbs_query_srq,
        ibv_pd,
        ibv_recv_wr,
        ibv_srq,
        ibv_srq_attr,
        ibv_srq_attr_mask_IBV_SRQ_MAX_WR,
        ibv_srq_init_attr,
        siw_ureq_modify_srq,
        siw_uresp_create_srq,
        siw_uresp_modify_srq, //
    },
    command::{
        Message,
        Request,
        Response, //
    },
    domain::Member,
    errno::{
        number,
        object,
        Errno, //
    },
    object::{
        free,
        payload,
        Fresh, //
    },
    private,
    provider::{
        NewSrq,
        Provider, //
    },
    shared::Offer,
    wr::Wrs, //
};
use core::ffi::c_int;

/// `IBV_SRQ_MAX_WR`.
const MAX_WR: c_int = ibv_srq_attr_mask_IBV_SRQ_MAX_WR as c_int;

/// What belongs to a shared receive queue.
type Payload<V> = (<V as Provider>::Srq, Member);

/// `create_srq`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn create_srq<V: Provider>(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    let create = || {
        let mut srq = Fresh::<ibv_srq, Payload<V>>::new()?;
        let base = srq.base();
        let mut req = Request::<ib_uverbs_create_srq>::zeroed();
        let mut resp = Response::<ib_uverbs_create_srq_resp, siw_uresp_create_srq>::zeroed();
        let (cmd, cmd_size) = req.parts();
        let (ans, ans_size) = resp.parts();
        // SAFETY: The protection domain and the attributes are valid; request and response are as
        // long as said.
        Errno::check(unsafe {
            private::ibv_cmd_create_srq(pd, base, attr, cmd, cmd_size, ans, ans_size)
        })?;
        // SAFETY: The attributes are valid; the call has stored the limits that it got.
        let attr = unsafe { attr.read() }.attr;
        // SAFETY: The protection domain is valid.
        let context = unsafe { (*pd).context };
        let new = NewSrq {
            recvs: Offer {
                // SAFETY: Its context is valid.
                fd: unsafe { (*context).cmd_fd },
                key: resp.driver.srq_key,
                entries: resp.driver.num_rqe,
            },
            max_sge: attr.max_sge,
        };
        match V::create_srq(&new) {
            // SAFETY: The protection domain is valid.
            Ok(payload) => Ok(srq.finish((payload, unsafe { Member::new(pd) }))),
            Err(error) => {
                // SAFETY: The kernel has made it, and nobody uses it. If this fails, it goes with
                // the context.
                unsafe { private::ibv_cmd_destroy_srq(base) };
                Err(error)
            }
        }
    };
    object(create())
}

/// `query_srq`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    let mut req = Request::<ib_uverbs_query_srq>::zeroed();
    let (cmd, size) = req.parts();
    // SAFETY: The queue and the room for attributes are valid; the request is as long as said.
    number(Errno::check(unsafe {
        private::ibv_cmd_query_srq(srq, attr, cmd, size)
    }))
}

/// `modify_srq`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn modify_srq<V: Provider>(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    if mask & MAX_WR == 0 {
        let mut req = Request::<ib_uverbs_modify_srq>::zeroed();
        let (cmd, size) = req.parts();
        // SAFETY: The queue and the attributes are valid; the request is as long as said.
        return number(Errno::check(unsafe {
            private::ibv_cmd_modify_srq(srq, attr, mask, cmd, size)
        }));
    }
    // SAFETY: From `create_srq`, and nobody destroys a queue that is in use.
    let (this, hold) = unsafe { payload::<ibv_srq, Payload<V>>(srq) };
    // C siw would ignore it.
    if hold.features() & feature::RESIZE_SRQ == 0 {
        return number(Err(Errno::EOPNOTSUPP));
    }
    let command = || {
        let mut resp = siw_uresp_modify_srq::default();
        let mut req = Request::<ib_uverbs_modify_srq, siw_ureq_modify_srq>::zeroed();
        req.driver.response = (&raw mut resp).expose_provenance() as u64;
        let (cmd, size) = req.parts();
        // SAFETY: The queue and the attributes are valid; the request is as long as said, and there
        // is room for the response that it asks for.
        Errno::check(unsafe { private::ibv_cmd_modify_srq(srq, attr, mask, cmd, size) })?;
        // The kernel has written it.
        // SAFETY: It is a variable of this function.
        let resp = unsafe { (&raw const resp).read_volatile() };
        let offer = Offer {
            fd: hold.fd(),
            key: resp.srq_key,
            entries: resp.num_rqe,
        };
        Ok((offer, resp.put))
    };
    number(V::resize_srq(this, command))
}

/// `destroy_srq`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn destroy_srq<V: Provider>(srq: *mut ibv_srq) -> c_int {
    // SAFETY: The queue is valid.
    let result = Errno::check(unsafe { private::ibv_cmd_destroy_srq(srq) });
    if result.is_ok() {
        // SAFETY: From `create_srq`; this is its last use.
        unsafe { free::<ibv_srq, Payload<V>>(srq) };
    }
    number(result)
}

/// `post_srq_recv`: at an error, `bad_wr` is the first work request that is not posted.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn post_srq_recv<V: Provider>(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: From `create_srq`, and nobody destroys a queue that is in use.
    let (srq, _) = unsafe { payload::<ibv_srq, Payload<V>>(srq) };
    // SAFETY: By the contract of `ibv_post_srq_recv`.
    let mut wrs = unsafe { Wrs::new(wr) };
    let result = V::post_srq_recv(srq, &mut wrs);
    if result.is_err() {
        // SAFETY: The caller gives room for the pointer.
        unsafe { bad_wr.write(wrs.rest()) };
    }
    number(result)
}
