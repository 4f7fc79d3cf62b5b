// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! What random calls and answers are made of.

use super::{
    fake::{
        BUSY,
        ENTRIES, //
    },
    ibv_data_buf,
    ibv_sge, //
};
use core::ffi::c_int;

/// The bytes of an input, as numbers. When they run out the rest is zero.
pub(super) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_be_bytes([self.u8(), self.u8(), self.u8(), self.u8()])
    }

    pub(super) fn u64(&mut self) -> u64 {
        (u64::from(self.u32()) << 32) | u64::from(self.u32())
    }

    /// Up to and without `n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::from(self.u8()) % n
    }

    pub(super) fn flag(&mut self) -> bool {
        self.u8() & 1 != 0
    }

    /// A number where something changes, or any.
    pub(super) fn number(&mut self) -> u32 {
        match self.below(8) {
            at @ 0..=4 => [ENTRIES, 1, 2, 0, u32::MAX][at],
            5 => 1 << self.below(32),
            6 => u32::from(self.u8()),
            _ => self.u32(),
        }
    }

    /// What the kernel says of a queue that is at `key`.
    pub(super) fn queue(&mut self, key: u64) -> (u64, u32) {
        let key = match self.below(6) {
            0..=2 => key,
            3 => 4096 * u64::from(self.u8()),
            4 => u64::MAX << self.below(64),
            _ => self.u64(),
        };
        (key, self.number())
    }

    /// The result of a command, mostly success.
    pub(super) fn result(&mut self) -> c_int {
        match self.below(16) {
            0 => BUSY,
            1 => -BUSY,
            2 => c_int::MIN,
            3 => self.u32() as c_int,
            _ => 0,
        }
    }
}

/// Memory of the program that is sent.
static BYTES: [u8; 128] = [7; 128];

/// One element of a list for posting.
fn sge(input: &mut Input<'_>) -> ibv_sge {
    let length = match input.below(4) {
        0 => input.u32(),
        1 => 80 + input.below(2) as u32,
        _ => input.below(40) as u32,
    };
    ibv_sge {
        addr: BYTES.as_ptr().expose_provenance() as u64,
        length,
        lkey: input.u8().into(),
    }
}

/// A list of elements, and the number that the work request gives.
pub(super) fn sges(input: &mut Input<'_>) -> (Vec<ibv_sge>, c_int) {
    let list: Vec<_> = (0..input.below(9)).map(|_| sge(input)).collect();
    let num = match input.below(16) {
        0 => -1 - input.u8() as c_int,
        1 => 0,
        _ => list.len() as c_int,
    };
    (list, num)
}

/// A list of buffers whose bytes are sent inline.
pub(super) fn buffers(input: &mut Input<'_>) -> Vec<ibv_data_buf> {
    let buffer = |input: &mut Input<'_>| ibv_data_buf {
        addr: BYTES.as_ptr().cast_mut().cast(),
        length: match input.below(8) {
            0 => usize::MAX - input.below(2),
            1 => 80 + input.below(2),
            _ => input.below(40),
        },
    };
    (0..input.below(5)).map(|_| buffer(input)).collect()
}
