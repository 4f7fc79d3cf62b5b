// SPDX-License-Identifier: GPL-2.0

//! What is fuzzed: each target takes any bytes and panics when a promise is broken.
//!
//! `../../fuzz` runs them under libFuzzer, and `../corpus.rs` over the inputs kept there. Bytes are
//! read as settings and operations first, with the lengths and offsets they need; whatever they are
//! they mean something, and when they run out the rest is zero.

#![allow(dead_code)] // Every fuzz target uses a part of it.

#[path = "../common/mod.rs"]
mod common;
mod messages;

pub mod access;
pub mod handshake;
pub mod queue_pair;
pub mod receive;
pub mod session;
pub mod stream;
pub mod terminate;
pub mod wire;

/// The bytes of an input, as numbers.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let n = N.min(self.0.len());
        let (now, rest) = self.0.split_at(n);
        out[..n].copy_from_slice(now);
        self.0 = rest;
        out
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn u8(&mut self) -> u8 {
        u8::from_be_bytes(self.array())
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    pub fn flag(&mut self) -> bool {
        self.u8() & 1 != 0
    }

    /// Up to and without `n`, which is at most 256.
    pub fn below(&mut self, n: u16) -> usize {
        usize::from(u16::from(self.u8()) % n)
    }

    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (now, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        now
    }

    /// The rest, mostly behind a key of MPA: nobody guesses that.
    pub fn frame(&mut self) -> Vec<u8> {
        let key: &[u8] = match self.below(4) {
            0 | 1 => b"MPA ID Req Frame",
            2 => b"MPA ID Rep Frame",
            _ => &[],
        };
        [key, self.rest()].concat()
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// A number at or around a place where something changes.
    pub fn edge(&mut self) -> u64 {
        let near = u64::from(self.u8() % 5).wrapping_sub(2);
        let place = match self.below(8) {
            0 => 0,
            1 => 0x1000,
            2 => 0x1_0000,
            3 => 1 << 31,
            4 => 1 << 32,
            5 => u64::MAX,
            6 => u64::from(self.u8()),
            _ => self.u64(),
        };
        place.wrapping_add(near)
    }
}

/// Cuts `bytes` in pieces whose lengths the input gives, over and over.
pub fn pieces<'a>(bytes: &'a [u8], lengths: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    let mut lengths = lengths.iter().cycle();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let n = lengths.next().map_or(1, |n| usize::from(*n).max(1));
        let (now, later) = rest.split_at(n.min(rest.len()));
        rest = later;
        Some(now)
    })
}
