// SPDX-License-Identifier: GPL-2.0

//! A start-up frame of the peer, put together from pieces.

use super::MAX_FRAME;
use crate::{
    error::MpaError,
    wire::{
        bytes::put_at,
        mpa::{
            Frame,
            ENHANCED_LEN,
            FRAME_LEN, //
        }, //
    }, //
};

/// Collects a frame and its private data.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    bytes: [u8; MAX_FRAME],
    have: usize,
    frame: Option<Frame>,
}

impl Collector {
    pub(super) const fn new() -> Self {
        Self {
            bytes: [0; MAX_FRAME],
            have: 0,
            frame: None,
        }
    }

    fn total(&self) -> usize {
        self.frame.map_or(FRAME_LEN, |frame| {
            FRAME_LEN.saturating_add(usize::from(frame.pd_len))
        })
    }

    pub(super) fn need(&self) -> usize {
        self.total().saturating_sub(self.have)
    }

    /// Appends bytes; the frame when it is whole. Bytes that no frame begins with are refused
    /// however few they are: their sender may wait for an answer. `check` judges the fixed part as
    /// soon as it is there.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        check: impl FnOnce(&Frame) -> Result<(), MpaError>,
    ) -> Result<Option<Frame>, MpaError> {
        let mut rest = self.append(bytes);
        if self.frame.is_none() && !Frame::may_begin(self.bytes.get(..self.have).unwrap_or(&[])) {
            return Err(MpaError::Key);
        }
        if self.frame.is_none() && self.have == FRAME_LEN {
            let frame = Frame::parse(&self.bytes)?;
            check(&frame)?;
            self.frame = Some(frame);
            rest = self.append(rest);
        }
        if !rest.is_empty() {
            // More than `need` asked for: these would be FPDU bytes, and they would be lost.
            return Err(MpaError::LocalCatastrophic);
        }
        Ok(self.frame.filter(|_| self.need() == 0))
    }

    fn append<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let take = self.need().min(bytes.len());
        let (now, rest) = bytes.split_at_checked(take).unwrap_or((&[], bytes));
        self.have = put_at(&mut self.bytes, self.have, now).unwrap_or(self.have);
        rest
    }

    /// Private data, enhanced data included.
    pub(super) fn private(&self) -> &[u8] {
        self.bytes.get(FRAME_LEN..self.have).unwrap_or(&[])
    }

    /// Private data of the ULP.
    pub(super) fn ulp_private(&self, enhanced: bool) -> &[u8] {
        let skip = if enhanced { ENHANCED_LEN } else { 0 };
        self.private().get(skip..).unwrap_or(&[])
    }
}
