// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Memory windows.

use super::{
    bindings::{
        ib_uverbs_alloc_mw,
        ib_uverbs_alloc_mw_resp,
        ibv_mw,
        ibv_mw_bind,
        ibv_mw_type_IBV_MW_TYPE_1 as TYPE_1,
        ibv_pd,
        ibv_qp,
        ibv_send_wr,
        ibv_wr_opcode_IBV_WR_BIND_MW as BIND_MW, //
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
        Fresh, //
    },
    private,
    provider::Provider,
    qp, //
};
use core::{
    ffi::c_int,
    ptr::null_mut, //
};

/// `alloc_mw`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: u32) -> *mut ibv_mw {
    let alloc = || {
        let mut mw = Fresh::<ibv_mw, Member>::new()?;
        let mut req = Request::<ib_uverbs_alloc_mw>::zeroed();
        let mut resp = Response::<ib_uverbs_alloc_mw_resp>::zeroed();
        let (cmd, cmd_size) = req.parts();
        let (ans, ans_size) = resp.parts();
        // SAFETY: The protection domain is valid; request and response are as long as said.
        Errno::check(unsafe {
            private::ibv_cmd_alloc_mw(pd, kind, mw.base(), cmd, cmd_size, ans, ans_size)
        })?;
        // SAFETY: The protection domain is valid.
        Ok(mw.finish(unsafe { Member::new(pd) }))
    };
    object(alloc())
}

/// `dealloc_mw`.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: The window is valid.
    let result = Errno::check(unsafe { private::ibv_cmd_dealloc_mw(mw) });
    if result.is_ok() {
        // SAFETY: From `alloc_mw`; this is its last use.
        unsafe { free::<ibv_mw, Member>(mw) };
    }
    number(result)
}

/// `bind_mw`: posts the bind of a window of type 1, which gets its next key at once. `EINVAL` for
/// one of type 2: a program posts its binds itself.
///
/// # Safety
///
/// As `ops` says.
pub(super) unsafe extern "C" fn bind_mw<V: Provider>(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    // SAFETY: The window is valid, and the program does not bind it in two threads at once.
    let window = unsafe { &mut *mw };
    if window.type_ != TYPE_1 {
        return number(Err(Errno::EINVAL));
    }
    // SAFETY: The request is valid.
    let bind = unsafe { bind.read() };
    let rkey = next_key(window.rkey);
    let mut wr = ibv_send_wr {
        wr_id: bind.wr_id,
        opcode: BIND_MW,
        send_flags: bind.send_flags,
        ..Default::default()
    };
    wr.__bindgen_anon_2.bind_mw.mw = mw;
    wr.__bindgen_anon_2.bind_mw.rkey = rkey;
    wr.__bindgen_anon_2.bind_mw.bind_info = bind.bind_info;
    let mut bad = null_mut();
    // SAFETY: The queue pair is valid, and so is the work request.
    let result = unsafe { qp::post_send::<V>(qp, &mut wr, &mut bad) };
    if result == 0 {
        window.rkey = rkey;
    }
    result
}

/// The same index with the next key, as `ibv_inc_rkey()` makes it.
fn next_key(rkey: u32) -> u32 {
    let [index @ .., key] = rkey.to_be_bytes();
    let [a, b, c] = index;
    u32::from_be_bytes([a, b, c, key.wrapping_add(1)])
}
