// SPDX-License-Identifier: GPL-2.0

//! Copying and cursors over byte slices, without indexing.

use super::super::error::{Error, Result};

/// Copies `bytes` to `buffer` from `at` on and returns where they end; `None`, and nothing is copied,
/// if they do not fit.
pub(crate) fn put_at(buffer: &mut [u8], at: usize, bytes: &[u8]) -> Option<usize> {
    let end = at.checked_add(bytes.len())?;
    let place = buffer.get_mut(at..end)?;
    // Always so; said here, it keeps the compiler from adding a panic for when it is not.
    if place.len() != bytes.len() {
        return None;
    }
    place.copy_from_slice(bytes);
    Some(end)
}

/// Reads big-endian numbers from the front of a slice.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// Takes `N` bytes, or fails with [`Error::Short`].
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Error::Short)?;
        self.0 = rest;
        Ok(*head)
    }

    /// Takes `n` bytes, or fails with [`Error::Short`].
    pub(super) fn slice(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(Error::Short)?;
        self.0 = rest;
        Ok(head)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }
}

/// Writes big-endian numbers to the front of a slice and counts them.
pub(super) struct Writer<'a> {
    out: &'a mut [u8],
    written: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut [u8]) -> Self {
        Self { out, written: 0 }
    }

    /// Appends `bytes`, or fails with [`Error::Buffer`] and leaves the output as it was.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.written = put_at(self.out, self.written, bytes).ok_or(Error::Buffer)?;
        Ok(())
    }

    pub(super) fn u8(&mut self, value: u8) -> Result<()> {
        self.put(&value.to_be_bytes())
    }

    pub(super) fn u16(&mut self, value: u16) -> Result<()> {
        self.put(&value.to_be_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> Result<()> {
        self.put(&value.to_be_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> Result<()> {
        self.put(&value.to_be_bytes())
    }

    /// Bytes written so far.
    pub(super) fn written(&self) -> usize {
        self.written
    }
}
