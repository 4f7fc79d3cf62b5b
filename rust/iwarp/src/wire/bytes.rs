// SPDX-License-Identifier: GPL-2.0

//! Copying and cursors over byte slices, without indexing.

use crate::error::{
    Error,
    Result, //
};

/// Copies `bytes` to `buffer` from `at` on and returns where they end; `None`, and nothing is
/// copied, if they do not fit.
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
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    /// Takes `N` bytes, or fails with [`Error::Short`].
    #[inline]
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

    #[inline]
    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    #[inline]
    pub(super) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    #[inline]
    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }
}

/// Writes big-endian numbers to the front of a slice and counts them.
pub(crate) struct Writer<'a> {
    /// What is left.
    out: &'a mut [u8],
    written: usize,
}

impl<'a> Writer<'a> {
    #[inline]
    pub(super) fn new(out: &'a mut [u8]) -> Self {
        Self { out, written: 0 }
    }

    /// Appends `bytes`, or fails with [`Error::Buffer`] and leaves the output as it was.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let end = put_at(self.out, 0, bytes).ok_or(Error::Buffer)?;
        self.skip(end);
        Ok(())
    }

    /// As [`Self::put`].
    #[inline]
    pub(super) fn array<const N: usize>(&mut self, bytes: [u8; N]) -> Result<()> {
        *self.out.first_chunk_mut().ok_or(Error::Buffer)? = bytes;
        self.skip(N);
        Ok(())
    }

    #[inline]
    fn skip(&mut self, n: usize) {
        self.out = core::mem::take(&mut self.out)
            .get_mut(n..)
            .unwrap_or(&mut []);
        self.written = self.written.wrapping_add(n);
    }

    #[inline]
    pub(super) fn u8(&mut self, value: u8) -> Result<()> {
        self.array(value.to_be_bytes())
    }

    #[inline]
    pub(super) fn u16(&mut self, value: u16) -> Result<()> {
        self.array(value.to_be_bytes())
    }

    #[inline]
    pub(super) fn u32(&mut self, value: u32) -> Result<()> {
        self.array(value.to_be_bytes())
    }

    #[inline]
    pub(super) fn u64(&mut self, value: u64) -> Result<()> {
        self.array(value.to_be_bytes())
    }

    /// Bytes written so far.
    #[inline]
    pub(super) fn written(&self) -> usize {
        self.written
    }
}
