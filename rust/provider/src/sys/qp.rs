// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Queue pairs.

use super::{
    bindings::{
        ib_uverbs_create_qp,
        ib_uverbs_create_qp_resp,
        ib_uverbs_modify_qp,
        ib_uverbs_query_qp,
        ibv_pd,
        ibv_qp,
        ibv_qp_attr,
        ibv_qp_init_attr,
        ibv_recv_wr,
        ibv_send_wr,
        siw_uresp_create_qp, //
    },
    command::{
        Message,
        Request,
        Response, //
    },
    device::Hold,
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
    private::{
        self,
        VerbsQp, //
    },
    provider::{
        NewQp,
        Provider, //
    },
    shared::{
        Doorbell,
        Offer, //
    },
    wr::Wrs, //
};
use core::ffi::c_int;

/// What belongs to a queue pair.
type Payload<V> = (<V as Provider>::Qp, Hold);

/// `create_qp`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn create_qp<V: Provider>(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    let create = || {
        let mut qp = Fresh::<VerbsQp, Payload<V>>::new()?;
        let base: *mut ibv_qp = qp.base().cast();
        let mut req = Request::<ib_uverbs_create_qp>::zeroed();
        let mut resp = Response::<ib_uverbs_create_qp_resp, siw_uresp_create_qp>::zeroed();
        let (cmd, cmd_size) = req.parts();
        let (ans, ans_size) = resp.parts();
        // SAFETY: The protection domain and the attributes are valid; request and response are as
        // long as said.
        Errno::check(unsafe {
            private::ibv_cmd_create_qp(pd, base, attr, cmd, cmd_size, ans, ans_size)
        })?;
        // SAFETY: The attributes are valid; the call has stored the limits that it got.
        let attr = unsafe { attr.read() };
        // SAFETY: The protection domain is valid.
        let context = unsafe { (*pd).context };
        // SAFETY: Its context is valid.
        let fd = unsafe { (*context).cmd_fd };
        // SAFETY: It is one that was opened.
        let hold = unsafe { Hold::new(context) };
        let answer = resp.driver;
        let new = NewQp {
            sends: Offer {
                fd,
                key: answer.sq_key,
                entries: answer.num_sqe,
            },
            // The C driver makes no queue of size 0.
            recvs: (attr.srq.is_null() && answer.num_rqe != 0).then_some(Offer {
                fd,
                key: answer.rq_key,
                entries: answer.num_rqe,
            }),
            doorbell: Doorbell {
                fd,
                // SAFETY: The call has filled in the queue pair.
                handle: unsafe { (*base).handle },
            },
            max_send_sge: attr.cap.max_send_sge,
            max_recv_sge: attr.cap.max_recv_sge,
            sig_all: attr.sq_sig_all != 0,
            features: hold.features(),
        };
        match V::create_qp(new) {
            Ok(payload) => Ok(qp.finish((payload, hold)).cast()),
            Err(error) => {
                // SAFETY: The kernel has made it, and nobody uses it. If this fails, it goes with
                // the context.
                unsafe { private::ibv_cmd_destroy_qp(base) };
                Err(error)
            }
        }
    };
    object(create())
}

/// `query_qp`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let mut req = Request::<ib_uverbs_query_qp>::zeroed();
    let (cmd, size) = req.parts();
    // SAFETY: The queue pair and the room for attributes are valid; the request is as long as said.
    number(Errno::check(unsafe {
        private::ibv_cmd_query_qp(qp, attr, mask, init, cmd, size)
    }))
}

/// `modify_qp`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    let mut req = Request::<ib_uverbs_modify_qp>::zeroed();
    let (cmd, size) = req.parts();
    // SAFETY: The queue pair and the attributes are valid; the request is as long as said.
    number(Errno::check(unsafe {
        private::ibv_cmd_modify_qp(qp, attr, mask, cmd, size)
    }))
}

/// `destroy_qp`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn destroy_qp<V: Provider>(qp: *mut ibv_qp) -> c_int {
    // SAFETY: The queue pair is valid.
    let result = Errno::check(unsafe { private::ibv_cmd_destroy_qp(qp) });
    if result.is_ok() {
        // SAFETY: From `create_qp`; this is its last use.
        unsafe { free::<VerbsQp, Payload<V>>(qp.cast()) };
    }
    number(result)
}

/// `post_send`: at an error, `bad_wr` is the first work request that is not posted.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn post_send<V: Provider>(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: From `create_qp`, and nobody destroys a queue pair that is in use.
    let (qp, _) = unsafe { payload::<VerbsQp, Payload<V>>(qp.cast()) };
    // SAFETY: By the contract of `ibv_post_send`.
    let mut wrs = unsafe { Wrs::new(wr) };
    let result = V::post_send(qp, &mut wrs);
    if result.is_err() {
        // SAFETY: The caller gives room for the pointer.
        unsafe { bad_wr.write(wrs.rest()) };
    }
    number(result)
}

/// `post_recv`: at an error, `bad_wr` is the first work request that is not posted.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn post_recv<V: Provider>(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: From `create_qp`, and nobody destroys a queue pair that is in use.
    let (qp, _) = unsafe { payload::<VerbsQp, Payload<V>>(qp.cast()) };
    // SAFETY: By the contract of `ibv_post_recv`.
    let mut wrs = unsafe { Wrs::new(wr) };
    let result = V::post_recv(qp, &mut wrs);
    if result.is_err() {
        // SAFETY: The caller gives room for the pointer.
        unsafe { bad_wr.write(wrs.rest()) };
    }
    number(result)
}
