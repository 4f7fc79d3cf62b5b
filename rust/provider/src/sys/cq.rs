// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Completion queues.

use super::{
    bindings::{
        self,
        ib_uverbs_create_cq,
        ib_uverbs_create_cq_resp,
        ib_uverbs_resize_cq,
        ib_uverbs_resize_cq_resp,
        ibv_comp_channel,
        ibv_context,
        ibv_cq,
        ibv_cq_ex,
        ibv_cq_init_attr_ex,
        ibv_cq_init_attr_mask_IBV_CQ_INIT_ATTR_MASK_FLAGS as MASK_FLAGS,
        ibv_cq_init_attr_mask_IBV_CQ_INIT_ATTR_MASK_PD as MASK_PD,
        ibv_create_cq_attr_flags_IBV_CREATE_CQ_ATTR_SINGLE_THREADED as SINGLE_THREADED,
        ibv_wc,
        siw_uresp_create_cq,
        siw_uresp_resize_cq, //
    },
    command::{
        Message,
        Request,
        Response, //
    },
    device::Hold,
    domain::{
        self,
        Member, //
    },
    errno::{
        number,
        object,
        Errno, //
    },
    object::{
        free,
        payload,
        Fresh,
        Section, //
    },
    poll::{
        self,
        Polling, //
    },
    private,
    provider::Provider,
    shared::Offer,
    wc::Wcs, //
};
use core::ffi::c_int;

/// What belongs to a completion queue.
pub(super) struct Payload<V: Provider> {
    /// The provider's part.
    pub(super) cq: V::Cq,
    /// The program that polls an extended one.
    pub(super) polling: Section<Polling<V>>,
    hold: Hold,
    _parent: Option<Member>,
}

/// What completions of an extended completion queue may say. There are no time stamps: the driver
/// takes none. What is not iWARP's is 0.
const WC_FLAGS: u64 = bindings::IBV_WC_STANDARD_FLAGS as u64;

/// Makes a completion queue, which `extend` completes.
///
/// # Safety
///
/// The context is valid, and so is the channel if there is one.
unsafe fn create<V: Provider>(
    context: *mut ibv_context,
    cqe: c_int,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
    parent: Option<Member>,
    extend: impl FnOnce(&mut ibv_cq_ex),
) -> Result<*mut ibv_cq_ex, Errno> {
    let mut cq = Fresh::<ibv_cq_ex, Payload<V>>::new()?;
    let base: *mut ibv_cq = cq.base().cast();
    let mut req = Request::<ib_uverbs_create_cq>::zeroed();
    let mut resp = Response::<ib_uverbs_create_cq_resp, siw_uresp_create_cq>::zeroed();
    let (cmd, cmd_size) = req.parts();
    let (ans, ans_size) = resp.parts();
    // SAFETY: By the requirements of this function; request and response are as long as said.
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
    let made = V::create_cq(&queue).inspect_err(|_| {
        // SAFETY: The kernel has made it, and nobody uses it. If this fails, it goes with the
        // context.
        unsafe { private::ibv_cmd_destroy_cq(base) };
    })?;
    // SAFETY: Nobody else has it yet, and zeros are valid where libibverbs has written nothing.
    extend(unsafe { &mut *cq.base() });
    Ok(cq.finish(Payload {
        cq: made,
        polling: Section::new(),
        // SAFETY: The context is valid.
        hold: unsafe { Hold::new(context) },
        _parent: parent,
    }))
}

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
    // SAFETY: By the requirements of this function.
    let cq = unsafe { create::<V>(context, cqe, channel, comp_vector, None, |_| ()) };
    object(cq).cast()
}

/// `create_cq_ex`. `EOPNOTSUPP` for what cannot be had. That one thread uses it makes no
/// difference.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn create_cq_ex<V: Provider>(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    let create = || {
        // What `comp_mask` does not name may not be there: older programs have shorter attributes.
        // SAFETY: The attributes are valid.
        let mask = unsafe { (*attr).comp_mask };
        // SAFETY: The attributes are valid.
        let wc_flags = unsafe { (*attr).wc_flags };
        let flags = match mask & MASK_FLAGS {
            0 => 0,
            // SAFETY: By the mask the program has set it.
            _ => unsafe { (*attr).flags },
        };
        if mask & !(MASK_FLAGS | MASK_PD) != 0
            || wc_flags & !WC_FLAGS != 0
            || flags & !SINGLE_THREADED != 0
        {
            return Err(Errno::EOPNOTSUPP);
        }
        let parent = match mask & MASK_PD {
            0 => None,
            _ => {
                // SAFETY: By the mask the program has set it.
                let parent = unsafe { (*attr).parent_domain };
                // SAFETY: The protection domain is valid.
                Some(unsafe { domain::parent(parent) }?)
            }
        };
        // SAFETY: The attributes are valid.
        let cqe = unsafe { (*attr).cqe }.try_into();
        // SAFETY: The attributes are valid.
        let vector = unsafe { (*attr).comp_vector }.try_into();
        // SAFETY: The attributes are valid.
        let channel = unsafe { (*attr).channel };
        let (Ok(cqe), Ok(vector)) = (cqe, vector) else {
            return Err(Errno::EINVAL);
        };
        // SAFETY: By the requirements of this function.
        unsafe { create::<V>(context, cqe, channel, vector, parent, poll::fill::<V>) }
    };
    object(create())
}

/// `resize_cq`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn resize_cq<V: Provider>(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: From `create_cq`, and nobody destroys a queue that is in use.
    let this = unsafe { payload::<ibv_cq_ex, Payload<V>>(cq.cast()) };
    let command = || {
        let mut req = Request::<ib_uverbs_resize_cq>::zeroed();
        let mut resp = Response::<ib_uverbs_resize_cq_resp, siw_uresp_resize_cq>::zeroed();
        let (cmd, cmd_size) = req.parts();
        let (ans, ans_size) = resp.parts();
        // SAFETY: The queue is valid; request and response are as long as said.
        Errno::check(unsafe { private::ibv_cmd_resize_cq(cq, cqe, cmd, cmd_size, ans, ans_size) })?;
        Ok(Offer {
            fd: this.hold.fd(),
            key: resp.driver.cq_key,
            entries: resp.driver.num_cqe,
        })
    };
    number(V::resize_cq(&this.cq, command))
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
        unsafe { free::<ibv_cq_ex, Payload<V>>(cq.cast()) };
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
        return number(Err(Errno::EINVAL)).saturating_neg();
    }
    // SAFETY: From `create_cq`, and nobody destroys a queue that is in use.
    let cq = &unsafe { payload::<ibv_cq_ex, Payload<V>>(cq.cast()) }.cq;
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
    let cq = &unsafe { payload::<ibv_cq_ex, Payload<V>>(cq.cast()) }.cq;
    V::req_notify_cq(cq, solicited_only != 0);
    0
}
