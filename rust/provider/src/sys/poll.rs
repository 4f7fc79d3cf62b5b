// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Polling an extended completion queue: `ibv_start_poll` to `ibv_end_poll`.
//!
//! The program calls these functions through the completion queue. Those that read look at the
//! completion which `start_poll` or `next_poll` has found last.

use super::{
    bindings::{
        ibv_cq_ex,
        ibv_poll_cq_attr, //
    },
    cq::Payload,
    errno::{
        number,
        Errno, //
    },
    object::payload,
    provider::Provider,
    wc::Wc, //
};
use core::ffi::{
    c_int,
    c_uint, //
};

/// A program that polls.
pub(super) struct Polling<V: Provider> {
    turn: V::Polling,
    wc: Wc,
}

/// Stores the functions in a completion queue.
pub(super) fn fill<V: Provider>(cq: &mut ibv_cq_ex) {
    cq.start_poll = Some(start_poll::<V>);
    cq.next_poll = Some(next_poll::<V>);
    cq.end_poll = Some(end_poll::<V>);
    cq.read_opcode = Some(read_opcode::<V>);
    cq.read_vendor_err = Some(read_zero);
    cq.read_byte_len = Some(read_byte_len::<V>);
    cq.read_imm_data = Some(read_imm_data::<V>);
    cq.read_qp_num = Some(read_qp_num::<V>);
    cq.read_src_qp = Some(read_zero);
    cq.read_wc_flags = Some(read_wc_flags::<V>);
    cq.read_slid = Some(read_zero);
    cq.read_sl = Some(read_zero_u8);
    cq.read_dlid_path_bits = Some(read_zero_u8);
}

/// The completion queue, as the provider and the program that polls have it.
///
/// # Safety
///
/// As `ops` says. The program polls in one thread at a time.
unsafe fn inside<'a, V: Provider>(cq: *mut ibv_cq_ex) -> (&'a V::Cq, &'a mut Option<Polling<V>>) {
    // SAFETY: From `create_cq_ex`, and nobody destroys a queue that is in use.
    let payload = unsafe { payload::<ibv_cq_ex, Payload<V>>(cq) };
    // SAFETY: By the requirements of this function.
    (&payload.cq, unsafe { payload.polling.inside() })
}

/// Stores what the program reads without a call.
///
/// # Safety
///
/// As for [`inside`].
unsafe fn show(cq: *mut ibv_cq_ex, wc: &Wc) {
    // SAFETY: By the requirements of this function.
    unsafe { (*cq).wr_id = wc.id };
    // SAFETY: By the requirements of this function.
    unsafe { (*cq).status = wc.status };
}

/// `start_poll`. `ENOENT` if there is no completion; then `end_poll` is not called.
///
/// # Safety
///
/// As `ops` says.
unsafe extern "C" fn start_poll<V: Provider>(
    cq: *mut ibv_cq_ex,
    attr: *mut ibv_poll_cq_attr,
) -> c_int {
    // SAFETY: The attributes are valid.
    if unsafe { (*attr).comp_mask } != 0 {
        return number(Err(Errno::EINVAL));
    }
    // SAFETY: From `create_cq_ex`, and nobody destroys a queue that is in use.
    let payload = unsafe { payload::<ibv_cq_ex, Payload<V>>(cq) };
    let mut turn = V::start_poll(&payload.cq);
    let Some(wc) = V::next_poll(&payload.cq, &mut turn) else {
        V::end_poll(&payload.cq, turn);
        return Errno::ENOENT.number();
    };
    // SAFETY: It is this thread's turn.
    unsafe { show(cq, &wc) };
    // SAFETY: It is this thread's turn.
    *unsafe { payload.polling.inside() } = Some(Polling { turn, wc });
    0
}

/// `next_poll`. `ENOENT` if there is no other completion.
///
/// # Safety
///
/// As for [`inside`].
unsafe extern "C" fn next_poll<V: Provider>(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: By the requirements of this function.
    let (queue, polling) = unsafe { inside::<V>(cq) };
    let Some(polling) = polling else {
        return number(Err(Errno::EINVAL));
    };
    let Some(wc) = V::next_poll(queue, &mut polling.turn) else {
        return Errno::ENOENT.number();
    };
    // SAFETY: By the requirements of this function.
    unsafe { show(cq, &wc) };
    polling.wc = wc;
    0
}

/// `end_poll`.
///
/// # Safety
///
/// As for [`inside`].
unsafe extern "C" fn end_poll<V: Provider>(cq: *mut ibv_cq_ex) {
    // SAFETY: By the requirements of this function.
    let (queue, polling) = unsafe { inside::<V>(cq) };
    if let Some(polling) = polling.take() {
        V::end_poll(queue, polling.turn);
    }
}

/// Functions that read a number of the completion, or 0 if there is none.
macro_rules! read {
    ($($name:ident($wc:ident) -> $type:ty { $value:expr })*) => {$(
        /// Reads it.
        ///
        /// # Safety
        ///
        /// As for [`inside`].
        unsafe extern "C" fn $name<V: Provider>(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: By the requirements of this function.
            let (_, polling) = unsafe { inside::<V>(cq) };
            polling.as_ref().map_or(0, |Polling { wc: $wc, .. }| $value)
        }
    )*};
}

read! {
    read_opcode(wc) -> u32 { wc.opcode }
    read_byte_len(wc) -> u32 { wc.bytes }
    read_imm_data(wc) -> u32 { wc.extra() }
    read_qp_num(wc) -> u32 { wc.qp_num }
    read_wc_flags(wc) -> c_uint { wc.flags() }
}

/// Reads what iWARP does not have, or the driver does not say.
unsafe extern "C" fn read_zero(_cq: *mut ibv_cq_ex) -> u32 {
    0
}

/// Reads what iWARP does not have.
unsafe extern "C" fn read_zero_u8(_cq: *mut ibv_cq_ex) -> u8 {
    0
}
