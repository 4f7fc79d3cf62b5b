// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Completion queues.

use super::{
    bindings::{
        ib_uverbs_create_cq,
        ib_uverbs_create_cq_resp,
        ibv_comp_channel,
        ibv_context,
        ibv_cq,
        ibv_wc,
        siw_uresp_create_cq, //
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
    private,
    provider::Provider,
    shared::Offer,
    wc::Wcs, //
};
use core::ffi::c_int;

/// What belongs to a completion queue.
type Payload<V> = (<V as Provider>::Cq, Hold);

/// `create_cq`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn create_cq<V: Provider>(
    context: *mut ibv_context,
    cqe: c_int,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let create = || {
        let mut cq = Fresh::<ibv_cq, Payload<V>>::new()?;
        let base = cq.base();
        let mut req = Request::<ib_uverbs_create_cq>::zeroed();
        let mut resp = Response::<ib_uverbs_create_cq_resp, siw_uresp_create_cq>::zeroed();
        let (cmd, cmd_size) = req.parts();
        let (ans, ans_size) = resp.parts();
        // SAFETY: The context is valid, and so is the channel if there is one; request and response
        // are as long as said.
        Errno::check(unsafe {
            private::ibv_cmd_create_cq(
                context,
                cqe,
                channel,
                comp_vector,
                base,
                cmd,
                cmd_size,
                ans,
                ans_size,
            )
        })?;
        let queue = Offer {
            // SAFETY: The context is valid.
            fd: unsafe { (*context).cmd_fd },
            key: resp.driver.cq_key,
            entries: resp.driver.num_cqe,
        };
        match V::create_cq(&queue) {
            // SAFETY: The context is valid.
            Ok(payload) => Ok(cq.finish((payload, unsafe { Hold::new(context) }))),
            Err(error) => {
                // SAFETY: The kernel has made it, and nobody uses it. If this fails, it goes with
                // the context.
                unsafe { private::ibv_cmd_destroy_cq(base) };
                Err(error)
            }
        }
    };
    object(create())
}

/// `destroy_cq`. The queue stays usable if the kernel refuses.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn destroy_cq<V: Provider>(cq: *mut ibv_cq) -> c_int {
    // SAFETY: The queue is valid.
    let result = Errno::check(unsafe { private::ibv_cmd_destroy_cq(cq) });
    if result.is_ok() {
        // SAFETY: From `create_cq`; this is its last use.
        unsafe { free::<ibv_cq, Payload<V>>(cq) };
    }
    number(result)
}

/// `poll_cq`: returns the number of completions, or a negative error number.
///
/// # Safety
///
/// As `ops` says. There is room for `room` completions.
pub(super) unsafe extern "C" fn poll_cq<V: Provider>(
    cq: *mut ibv_cq,
    room: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    if room < 0 {
        return Errno::EINVAL.number().saturating_neg();
    }
    // SAFETY: From `create_cq`, and nobody destroys a queue that is in use.
    let (cq, _) = unsafe { payload::<ibv_cq, Payload<V>>(cq) };
    // SAFETY: By the requirements of this function.
    let mut out = unsafe { Wcs::new(wc, room) };
    V::poll_cq(cq, &mut out);
    out.count()
}

/// `req_notify_cq`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn req_notify_cq<V: Provider>(
    cq: *mut ibv_cq,
    solicited_only: c_int,
) -> c_int {
    // SAFETY: From `create_cq`, and nobody destroys a queue that is in use.
    let (cq, _) = unsafe { payload::<ibv_cq, Payload<V>>(cq) };
    V::req_notify_cq(cq, solicited_only != 0);
    0
}
