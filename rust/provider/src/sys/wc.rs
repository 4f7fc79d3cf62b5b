// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Work completions, as programs get them.

use super::bindings::{
    ibv_wc,
    ibv_wc__bindgen_ty_1,
    ibv_wc_flags_IBV_WC_WITH_IMM as WITH_IMM,
    ibv_wc_flags_IBV_WC_WITH_INV as WITH_INV, //
};
use core::{
    ffi::{
        c_int,
        c_uint, //
    },
    marker::PhantomData, //
};

/// A work completion. [`Wcs::push`] makes a `struct ibv_wc` of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wc {
    /// The number of the work request.
    pub(crate) id: u64,
    /// `enum ibv_wc_status`.
    pub(crate) status: u32,
    /// `enum ibv_wc_opcode`.
    pub(crate) opcode: u32,
    /// Length of the message in bytes.
    pub(crate) bytes: u32,
    /// The number of the queue pair.
    pub(crate) qp_num: u32,
    /// What came with the message.
    pub(crate) with: With,
}

/// What comes with a message, apart from its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum With {
    /// Nothing.
    Nothing,
    /// The key that the peer has invalidated.
    Invalidate(u32),
    /// Immediate data, in the byte order in which the peer's program gave it.
    Immediate(u32),
}

impl Wc {
    /// `enum ibv_wc_flags`.
    pub(super) fn flags(&self) -> c_uint {
        match self.with {
            With::Nothing => 0,
            With::Invalidate(_) => WITH_INV as c_uint,
            With::Immediate(_) => WITH_IMM as c_uint,
        }
    }

    /// What the flags say is there.
    pub(super) fn extra(&self) -> u32 {
        match self.with {
            With::Nothing => 0,
            With::Invalidate(extra) | With::Immediate(extra) => extra,
        }
    }
}

/// A program's room for work completions.
///
/// # Invariants
///
/// `to` points to room for `room` completions, and `done` completions are before it.
pub(crate) struct Wcs<'a> {
    to: *mut ibv_wc,
    room: c_int,
    done: c_int,
    _p: PhantomData<&'a mut ibv_wc>,
}

impl Wcs<'_> {
    /// # Safety
    ///
    /// `to` points to room for `room` completions, which nobody else uses during the lifetime.
    pub(super) unsafe fn new(to: *mut ibv_wc, room: c_int) -> Self {
        // INVARIANT: By the requirements of this function.
        Self {
            to,
            room,
            done: 0,
            _p: PhantomData,
        }
    }

    /// Whether there is no room left.
    pub(crate) fn is_full(&self) -> bool {
        self.room <= 0
    }

    /// Appends a completion, if there is room.
    pub(crate) fn push(&mut self, wc: &Wc) {
        if self.is_full() {
            return;
        }
        let full = ibv_wc {
            wr_id: wc.id,
            status: wc.status,
            opcode: wc.opcode,
            byte_len: wc.bytes,
            qp_num: wc.qp_num,
            wc_flags: wc.flags(),
            __bindgen_anon_1: ibv_wc__bindgen_ty_1 {
                invalidated_rkey: wc.extra(),
            },
            ..Default::default()
        };
        // SAFETY: There is room by the type invariants.
        unsafe { self.to.write(full) };
        // INVARIANT: One more is done, and there is room for one less.
        self.to = self.to.wrapping_add(1);
        self.room = self.room.saturating_sub(1);
        self.done = self.done.saturating_add(1);
    }

    /// The number of completions that were appended.
    pub(super) fn count(&self) -> c_int {
        self.done
    }
}
