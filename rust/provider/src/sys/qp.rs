// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Queue pairs.

use super::{
    bindings::{
        ib_uverbs_create_qp,
        ib_uverbs_create_qp_resp,
        ib_uverbs_modify_qp,
        ib_uverbs_query_qp,
        ibv_ah_attr,
        ibv_context,
        ibv_pd,
        ibv_qp,
        ibv_qp_attr,
        ibv_qp_attr_mask_IBV_QP_AV as AV,
        ibv_qp_attr_mask_IBV_QP_STATE as STATE,
        ibv_qp_init_attr,
        ibv_qp_init_attr_ex,
        ibv_qp_init_attr_mask_IBV_QP_INIT_ATTR_CREATE_FLAGS as MASK_CREATE_FLAGS,
        ibv_qp_init_attr_mask_IBV_QP_INIT_ATTR_PD as MASK_PD,
        ibv_qp_init_attr_mask_IBV_QP_INIT_ATTR_SEND_OPS_FLAGS as MASK_SEND_OPS,
        ibv_qp_state_IBV_QPS_RESET as RESET,
        ibv_recv_wr,
        ibv_send_wr,
        siw_uresp_create_qp, //
    },
    build::{
        self,
        Building, //
    },
    command::{
        Message,
        Request,
        Response, //
    },
    device::Hold,
    domain::Member,
    errno::{
        number,
        object,
        Errno, //
    },
    lid::{
        self,
        Dlid, //
    },
    object::{
        free,
        payload,
        Fresh,
        Section, //
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
use core::{
    ffi::c_int,
    mem::{
        offset_of,
        MaybeUninit, //
    },
    ptr::copy_nonoverlapping, //
};

// Extended attributes begin like others.
const _: () = {
    assert!(
        offset_of!(ibv_qp_init_attr, sq_sig_all) == offset_of!(ibv_qp_init_attr_ex, sq_sig_all)
    );
    assert!(offset_of!(ibv_qp_init_attr, cap) == offset_of!(ibv_qp_init_attr_ex, cap));
};

/// What belongs to a queue pair.
pub(super) struct Payload<V: Provider> {
    /// The provider's part.
    pub(super) qp: V::Qp,
    /// The program that builds work requests.
    pub(super) building: Section<Building<V>>,
    /// The LID of the peer that the program has set.
    dlid: Dlid,
    _pd: Member,
}

/// Makes a queue pair. A program builds work requests for one that is `extended`.
///
/// # Safety
///
/// The protection domain and the attributes are valid.
unsafe fn create<V: Provider>(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
    extended: bool,
) -> Result<*mut ibv_qp, Errno> {
    let mut qp = Fresh::<VerbsQp, Payload<V>>::new()?;
    let base: *mut ibv_qp = qp.base().cast();
    let mut req = Request::<ib_uverbs_create_qp>::zeroed();
    let mut resp = Response::<ib_uverbs_create_qp_resp, siw_uresp_create_qp>::zeroed();
    let (cmd, cmd_size) = req.parts();
    let (ans, ans_size) = resp.parts();
    // SAFETY: By the requirements of this function; request and response are as long as said.
    Errno::check(unsafe {
        private::ibv_cmd_create_qp(pd, base, attr, cmd, cmd_size, ans, ans_size)
    })?;
    // SAFETY: The attributes are valid; the call has stored the limits that it got.
    let attr = unsafe { attr.read() };
    // SAFETY: The protection domain is valid.
    let context = unsafe { (*pd).context };
    // SAFETY: Its context is valid.
    let fd = unsafe { (*context).cmd_fd };
    // SAFETY: The protection domain is valid.
    let member = unsafe { Member::new(pd) };
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
        // SAFETY: The call has filled in the queue pair, which is freed after what belongs to it.
        doorbell: unsafe { Doorbell::new(fd, qp.base_ptr().cast(), member.imported()) },
        max_send_sge: attr.cap.max_send_sge,
        max_recv_sge: attr.cap.max_recv_sge,
        sig_all: attr.sq_sig_all != 0,
        features: member.features(),
    };
    let made = V::create_qp(new).inspect_err(|_| {
        // SAFETY: The kernel has made it, and nobody uses it. If this fails, it goes with the
        // context.
        unsafe { private::ibv_cmd_destroy_qp(base) };
    })?;
    if extended {
        // SAFETY: Nobody else has it yet, and zeros are valid where libibverbs has written nothing.
        build::fill::<V>(unsafe { &mut *qp.base() });
    }
    let payload = Payload {
        qp: made,
        building: Section::new(),
        dlid: Dlid::default(),
        _pd: member,
    };
    Ok(qp.finish(payload).cast())
}

/// `create_qp`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn create_qp<V: Provider>(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: By the requirements of this function.
    object(unsafe { create::<V>(pd, attr, false) })
}

/// `create_qp_ex`. `EOPNOTSUPP` for what cannot be had, a work request that cannot be built
/// included.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn create_qp_ex<V: Provider>(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    let create = || {
        // What `comp_mask` does not name may not be there: older programs have shorter attributes.
        // SAFETY: The attributes are valid.
        let mask = unsafe { (*attr).comp_mask };
        // There are no such flags, but a program may say so.
        let flags = match mask & MASK_CREATE_FLAGS {
            0 => 0,
            // SAFETY: By the mask the program has set it.
            _ => unsafe { (*attr).create_flags },
        };
        if flags != 0 || mask & !(MASK_PD | MASK_SEND_OPS | MASK_CREATE_FLAGS) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if mask & MASK_PD == 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: By the mask the program has set it.
        let pd = unsafe { (*attr).pd };
        if pd.is_null() {
            return Err(Errno::EINVAL);
        }
        let extended = mask & MASK_SEND_OPS != 0;
        if extended {
            // SAFETY: The context is valid.
            let features = unsafe { Hold::new(context) }.features();
            // SAFETY: By the mask the program has set it.
            let ops = unsafe { (*attr).send_ops_flags };
            if ops & !V::send_ops(features) != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
        }
        // Extended attributes begin like others; libibverbs relies on that, too.
        // SAFETY: The attributes are valid, and so is the protection domain.
        unsafe { create::<V>(pd, attr.cast(), extended) }
    };
    object(create())
}

/// `query_qp`. A peer that was named by its LID is named so again.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn query_qp<V: Provider>(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: From `create_qp`, and nobody destroys a queue pair that is in use.
    let dlid = &unsafe { payload::<VerbsQp, Payload<V>>(qp.cast()) }.dlid;
    let mut req = Request::<ib_uverbs_query_qp>::zeroed();
    let (cmd, size) = req.parts();
    // SAFETY: The queue pair and the room for attributes are valid; the request is as long as said.
    let ret = unsafe { private::ibv_cmd_query_qp(qp, attr, mask, init, cmd, size) };
    let result = Errno::check(ret);
    if result.is_ok() {
        // SAFETY: The room for attributes is valid; the call has filled it in.
        dlid.restore(unsafe { &mut (*attr).ah_attr });
    }
    number(result)
}

/// `modify_qp`. A peer that is named by its LID gets the driver's kind of name.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn modify_qp<V: Provider>(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: From `create_qp`, and nobody destroys a queue pair that is in use.
    let dlid = &unsafe { payload::<VerbsQp, Payload<V>>(qp.cast()) }.dlid;
    if mask & AV as c_int == 0 {
        // SAFETY: As this function demands.
        let result = unsafe { command(qp, attr, mask) };
        // SAFETY: By `mask` this attribute is valid.
        if mask & STATE as c_int != 0 && unsafe { (*attr).qp_state } == RESET && result.is_ok() {
            // The driver forgets the peer, too.
            dlid.set(0);
        }
        return number(result);
    }
    // SAFETY: The queue pair is valid.
    let context = unsafe { (*qp).context };
    // SAFETY: By `mask` these attributes are valid.
    let ah = unsafe { (*attr).ah_attr };
    // SAFETY: The context is valid.
    let result = match unsafe { lid::routed(context, &ah) } {
        None => {
            // SAFETY: As this function demands.
            let result = unsafe { command(qp, attr, mask) };
            result.map(|()| dlid.set(0))
        }
        Some(route) => {
            // The program's own are not changed. Those that `mask` does not name are copied, too,
            // and may be anything.
            let mut copy = MaybeUninit::<ibv_qp_attr>::zeroed();
            // Without the last one, which older programs do not have.
            let len = offset_of!(ibv_qp_attr, rate_limit);
            // SAFETY: The attributes are valid, and the copy is as long.
            unsafe { copy_nonoverlapping(attr.cast::<u8>(), copy.as_mut_ptr().cast(), len) };
            let to = copy
                .as_mut_ptr()
                .wrapping_byte_add(offset_of!(ibv_qp_attr, ah_attr));
            // SAFETY: It is a part of the copy.
            unsafe { to.cast::<ibv_ah_attr>().write(route) };
            // SAFETY: As this function demands, for the copy as well.
            let result = unsafe { command(qp, copy.as_mut_ptr(), mask) };
            result.map(|()| dlid.set(ah.dlid))
        }
    };
    number(result)
}

/// The command `MODIFY_QP`.
///
/// # Safety
///
/// As [`modify_qp`].
unsafe fn command(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> Result<(), Errno> {
    let mut req = Request::<ib_uverbs_modify_qp>::zeroed();
    let (cmd, size) = req.parts();
    // SAFETY: The queue pair and the attributes are valid; the request is as long as said.
    Errno::check(unsafe { private::ibv_cmd_modify_qp(qp, attr, mask, cmd, size) })
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
    let qp = &unsafe { payload::<VerbsQp, Payload<V>>(qp.cast()) }.qp;
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
    let qp = &unsafe { payload::<VerbsQp, Payload<V>>(qp.cast()) }.qp;
    // SAFETY: By the contract of `ibv_post_recv`.
    let mut wrs = unsafe { Wrs::new(wr) };
    let result = V::post_recv(qp, &mut wrs);
    if result.is_err() {
        // SAFETY: The caller gives room for the pointer.
        unsafe { bad_wr.write(wrs.rest()) };
    }
    number(result)
}
