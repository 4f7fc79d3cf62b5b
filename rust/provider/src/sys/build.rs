// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Building work requests: `ibv_wr_start` to `ibv_wr_complete`.
//!
//! The program calls these functions through the queue pair. A function of an operation begins a
//! work request, which others may then give its data. It is finished by the next one, or by the
//! end, and is then judged like one that was posted.

use super::{
    abi::{
        send_flags::INLINE,
        wr_opcode,
        MAX_INLINE,
        MAX_SGE, //
    },
    bindings::{
        ibv_data_buf,
        ibv_mw,
        ibv_mw_bind_info,
        ibv_qp_ex,
        ibv_send_wr, //
    },
    errno::{
        number,
        Errno, //
    },
    object::payload,
    private::VerbsQp,
    provider::Provider,
    qp::Payload,
    wr::{
        SendWr,
        Sge, //
    }, //
};
use core::{
    ffi::{
        c_int,
        c_void, //
    },
    ptr::copy_nonoverlapping,
    slice, //
};

/// A program that builds work requests.
pub(super) struct Building<V: Provider> {
    batch: V::Batch,
    /// The first error. What comes after it is not looked at.
    result: Result<(), Errno>,
    /// The one that is being built. Addresses of what is here are set when it is finished.
    wr: Option<ibv_send_wr>,
    list: [Sge; MAX_SGE],
    bytes: [u8; MAX_INLINE],
}

impl<V: Provider> Building<V> {
    fn new(batch: V::Batch) -> Self {
        Self {
            batch,
            result: Ok(()),
            wr: None,
            list: [Sge::default(); MAX_SGE],
            bytes: [0; MAX_INLINE],
        }
    }

    /// Finishes the work request that is being built, if there is one.
    fn finish(&mut self, qp: &V::Qp) {
        let Some(mut wr) = self.wr.take() else {
            return;
        };
        if wr.send_flags & INLINE != 0 {
            let [all, ..] = &mut self.list;
            all.addr = self.bytes.as_ptr().expose_provenance() as u64;
        }
        wr.sg_list = self.list.as_mut_ptr();
        if self.result.is_ok() {
            // SAFETY: Its list is here; the rest is what the program has set, as if it posted it.
            let wr = unsafe { SendWr::new(&wr) };
            self.result = V::add_to_batch(qp, &mut self.batch, &wr);
        }
    }

    /// Gives data to the work request: `set` stores it, and returns the number of elements. A
    /// program must have begun one.
    fn set(&mut self, set: impl FnOnce(&mut Self) -> Result<(usize, u32), Errno>) {
        let set = set(self);
        match (set, &mut self.wr) {
            (Ok((num, flag)), Some(wr)) => {
                // It was checked that they fit.
                wr.num_sge = num.try_into().unwrap_or(c_int::MAX);
                wr.send_flags = wr.send_flags & !INLINE | flag;
            }
            (Ok(_), None) => self.fail(Errno::EINVAL),
            (Err(error), _) => self.fail(error),
        }
    }

    fn fail(&mut self, error: Errno) {
        self.result = self.result.and(Err(error));
    }

    /// Stores a list; `EINVAL` if it is too long.
    fn store_list(&mut self, list: &[Sge]) -> Result<(usize, u32), Errno> {
        let to = self.list.get_mut(..list.len()).ok_or(Errno::EINVAL)?;
        to.copy_from_slice(list);
        Ok((list.len(), 0))
    }

    /// Stores payload; `EINVAL` if it is too long.
    ///
    /// # Safety
    ///
    /// The program can read what the list says.
    unsafe fn store_inline(&mut self, list: &[ibv_data_buf]) -> Result<(usize, u32), Errno> {
        let mut done: usize = 0;
        for from in list {
            let end = done.checked_add(from.length).ok_or(Errno::EINVAL)?;
            let to = self.bytes.get_mut(done..end).ok_or(Errno::EINVAL)?;
            // A null pointer may stand for nothing.
            if from.length != 0 {
                // SAFETY: By the requirements of this function. `to` is as long, and is not the
                // program's.
                unsafe { copy_nonoverlapping(from.addr.cast(), to.as_mut_ptr(), from.length) };
            }
            done = end;
        }
        let all = Sge {
            addr: 0,
            length: done.try_into().map_err(|_| Errno::EINVAL)?,
            lkey: 0,
        };
        let (num, _) = self.store_list(&[all])?;
        Ok((num, INLINE))
    }
}

/// Stores the functions in a queue pair.
pub(super) fn fill<V: Provider>(qp: &mut VerbsQp) {
    qp.extend();
    let qp = &mut qp.qp;
    qp.wr_start = Some(wr_start::<V>);
    qp.wr_complete = Some(wr_complete::<V>);
    qp.wr_abort = Some(wr_abort::<V>);
    qp.wr_send = Some(wr_send::<V>);
    qp.wr_send_inv = Some(wr_send_inv::<V>);
    qp.wr_rdma_write = Some(wr_rdma_write::<V>);
    qp.wr_rdma_read = Some(wr_rdma_read::<V>);
    qp.wr_send_imm = Some(wr_send_imm::<V>);
    qp.wr_rdma_write_imm = Some(wr_rdma_write_imm::<V>);
    qp.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp::<V>);
    qp.wr_atomic_fetch_add = Some(wr_atomic_fetch_add::<V>);
    qp.wr_local_inv = Some(wr_local_inv::<V>);
    qp.wr_bind_mw = Some(wr_bind_mw::<V>);
    qp.wr_set_sge = Some(wr_set_sge::<V>);
    qp.wr_set_sge_list = Some(wr_set_sge_list::<V>);
    qp.wr_set_inline_data = Some(wr_set_inline_data::<V>);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list::<V>);
}

/// The queue pair, as the provider and the program that builds have it.
///
/// # Safety
///
/// As `ops` says. The program builds in one thread at a time.
unsafe fn inside<'a, V: Provider>(qp: *mut ibv_qp_ex) -> (&'a V::Qp, &'a mut Option<Building<V>>) {
    // SAFETY: From `create_qp_ex`, and nobody destroys a queue pair that is in use.
    let payload = unsafe { payload::<VerbsQp, Payload<V>>(qp.cast()) };
    // SAFETY: By the requirements of this function.
    (&payload.qp, unsafe { payload.building.inside() })
}

/// Begins a work request with the number and the flags that the program has left in the queue pair.
/// `operands` stores what the operation needs.
///
/// # Safety
///
/// As for [`inside`].
unsafe fn begin<V: Provider>(
    qp: *mut ibv_qp_ex,
    opcode: u32,
    operands: impl FnOnce(&mut ibv_send_wr),
) {
    // SAFETY: By the requirements of this function.
    let wr_id = unsafe { (*qp).wr_id };
    // SAFETY: By the requirements of this function.
    let flags = unsafe { (*qp).wr_flags };
    // SAFETY: By the requirements of this function.
    let (qp, building) = unsafe { inside::<V>(qp) };
    let Some(building) = building else {
        return;
    };
    building.finish(qp);
    let wr = building.wr.insert(ibv_send_wr {
        wr_id,
        opcode,
        // Data is inline if a function for inline data gives it.
        send_flags: flags & !INLINE,
        ..Default::default()
    });
    operands(wr);
}

/// Gives data to the work request that is being built.
///
/// # Safety
///
/// As for [`inside`].
unsafe fn set<V: Provider>(
    qp: *mut ibv_qp_ex,
    set: impl FnOnce(&mut Building<V>) -> Result<(usize, u32), Errno>,
) {
    // SAFETY: By the requirements of this function.
    let (_, building) = unsafe { inside::<V>(qp) };
    if let Some(building) = building {
        building.set(set);
    }
}

/// `wr_start`.
///
/// # Safety
///
/// As `ops` says.
unsafe extern "C" fn wr_start<V: Provider>(qp: *mut ibv_qp_ex) {
    // SAFETY: From `create_qp_ex`, and nobody destroys a queue pair that is in use.
    let payload = unsafe { payload::<VerbsQp, Payload<V>>(qp.cast()) };
    let batch = V::start_batch(&payload.qp);
    // SAFETY: It is this thread's turn.
    *unsafe { payload.building.inside() } = Some(Building::new(batch));
}

/// `wr_complete`: posts all of them, or none if one of them, or the data of one, was wrong. Returns
/// the first error.
///
/// # Safety
///
/// As for [`inside`].
unsafe extern "C" fn wr_complete<V: Provider>(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: By the requirements of this function.
    let (qp, building) = unsafe { inside::<V>(qp) };
    let Some(mut building) = building.take() else {
        return number(Err(Errno::EINVAL));
    };
    building.finish(qp);
    number(match building.result {
        Ok(()) => V::post_batch(qp, building.batch),
        Err(error) => {
            V::abort_batch(qp, building.batch);
            Err(error)
        }
    })
}

/// `wr_abort`.
///
/// # Safety
///
/// As for [`inside`].
unsafe extern "C" fn wr_abort<V: Provider>(qp: *mut ibv_qp_ex) {
    // SAFETY: By the requirements of this function.
    let (qp, building) = unsafe { inside::<V>(qp) };
    if let Some(building) = building.take() {
        V::abort_batch(qp, building.batch);
    }
}

/// Functions of operations: what they are called with, and where it goes.
macro_rules! operations {
    ($($name:ident($($arg:ident: $type:ty),*), $opcode:ident, |$wr:pat_param| $store:block)*) => {$(
        /// Begins a work request.
        ///
        /// # Safety
        ///
        /// As for [`inside`].
        unsafe extern "C" fn $name<V: Provider>(qp: *mut ibv_qp_ex, $($arg: $type),*) {
            let operands = |$wr: &mut ibv_send_wr| $store;
            // SAFETY: By the requirements of this function.
            unsafe { begin::<V>(qp, wr_opcode::$opcode, operands) };
        }
    )*};
}

operations! {
    wr_send(), SEND, |_| {}
    wr_send_inv(rkey: u32), SEND_WITH_INV, |wr| { wr.__bindgen_anon_1.invalidate_rkey = rkey }
    wr_send_imm(data: u32), SEND_WITH_IMM, |wr| { wr.__bindgen_anon_1.imm_data = data }
    wr_rdma_write(rkey: u32, addr: u64), RDMA_WRITE, |wr| { remote(wr, rkey, addr) }
    wr_rdma_write_imm(rkey: u32, addr: u64, data: u32), RDMA_WRITE_WITH_IMM, |wr| {
        remote(wr, rkey, addr);
        wr.__bindgen_anon_1.imm_data = data;
    }
    wr_atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64), ATOMIC_CMP_AND_SWP, |wr| {
        target(wr, rkey, addr, [compare, swap])
    }
    wr_atomic_fetch_add(rkey: u32, addr: u64, add: u64), ATOMIC_FETCH_AND_ADD, |wr| {
        target(wr, rkey, addr, [add, 0])
    }
    wr_rdma_read(rkey: u32, addr: u64), RDMA_READ, |wr| { remote(wr, rkey, addr) }
    wr_local_inv(rkey: u32), LOCAL_INV, |wr| { wr.__bindgen_anon_1.invalidate_rkey = rkey }
}

/// Stores the address and the key at the peer.
fn remote(wr: &mut ibv_send_wr, rkey: u32, addr: u64) {
    wr.wr.rdma.rkey = rkey;
    wr.wr.rdma.remote_addr = addr;
}

/// Stores the target of an atomic operation, and its operands.
fn target(wr: &mut ibv_send_wr, rkey: u32, addr: u64, [compare_add, swap]: [u64; 2]) {
    wr.wr.atomic.rkey = rkey;
    wr.wr.atomic.remote_addr = addr;
    wr.wr.atomic.compare_add = compare_add;
    wr.wr.atomic.swap = swap;
}

/// `wr_bind_mw`.
///
/// # Safety
///
/// As for [`inside`]. The window and the request are valid.
unsafe extern "C" fn wr_bind_mw<V: Provider>(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: By the requirements of this function.
    let info = unsafe { info.read() };
    let operands = |wr: &mut ibv_send_wr| {
        wr.__bindgen_anon_2.bind_mw.mw = mw;
        wr.__bindgen_anon_2.bind_mw.rkey = rkey;
        wr.__bindgen_anon_2.bind_mw.bind_info = info;
    };
    // SAFETY: By the requirements of this function.
    unsafe { begin::<V>(qp, wr_opcode::BIND_MW, operands) };
    // SAFETY: By the requirements of this function.
    let (qp, building) = unsafe { inside::<V>(qp) };
    // It has no data, and the region that it names is valid now.
    if let Some(building) = building {
        building.finish(qp);
    }
}

/// `wr_set_sge`.
///
/// # Safety
///
/// As for [`inside`].
unsafe extern "C" fn wr_set_sge<V: Provider>(
    qp: *mut ibv_qp_ex,
    lkey: u32,
    addr: u64,
    length: u32,
) {
    let list = [Sge { addr, length, lkey }];
    // SAFETY: By the requirements of this function.
    unsafe { set::<V>(qp, |building| building.store_list(&list)) };
}

/// `wr_set_sge_list`.
///
/// # Safety
///
/// As for [`inside`]. The list has `num` elements.
unsafe extern "C" fn wr_set_sge_list<V: Provider>(
    qp: *mut ibv_qp_ex,
    num: usize,
    list: *const Sge,
) {
    // SAFETY: By the requirements of this function.
    let list = unsafe { elements(list, num) };
    // SAFETY: By the requirements of this function.
    unsafe { set::<V>(qp, |building| building.store_list(list)) };
}

/// `wr_set_inline_data`.
///
/// # Safety
///
/// As for [`inside`]. The program can read `length` bytes at `addr`.
unsafe extern "C" fn wr_set_inline_data<V: Provider>(
    qp: *mut ibv_qp_ex,
    addr: *mut c_void,
    length: usize,
) {
    let list = [ibv_data_buf { addr, length }];
    let store = |building: &mut Building<V>| {
        // SAFETY: By the requirements of this function.
        unsafe { building.store_inline(&list) }
    };
    // SAFETY: By the requirements of this function.
    unsafe { set(qp, store) };
}

/// `wr_set_inline_data_list`.
///
/// # Safety
///
/// As for [`inside`]. The list has `num` elements, and the program can read what they say.
unsafe extern "C" fn wr_set_inline_data_list<V: Provider>(
    qp: *mut ibv_qp_ex,
    num: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: By the requirements of this function.
    let list = unsafe { elements(list, num) };
    let store = |building: &mut Building<V>| {
        // SAFETY: By the requirements of this function.
        unsafe { building.store_inline(list) }
    };
    // SAFETY: By the requirements of this function.
    unsafe { set(qp, store) };
}

/// A list of a program, which may be null if it is empty.
///
/// # Safety
///
/// `list` has `num` elements during the lifetime.
unsafe fn elements<'a, T>(list: *const T, num: usize) -> &'a [T] {
    if num == 0 {
        return &[];
    }
    // SAFETY: By the requirements of this function.
    unsafe { slice::from_raw_parts(list, num) }
}
