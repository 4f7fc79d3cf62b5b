// SPDX-License-Identifier: GPL-2.0

//! Markers: where they go in an FPDU (RFC 5044 4.3).

use crate::wire::mpa::{
    MARKER_INTERVAL,
    MARKER_LEN, //
};

/// A marker of an FPDU (RFC 5044 4.2 and 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// It goes in front of this byte of the FPDU, counted without markers. The CRC goes over it
    /// too.
    pub at: u32,
    /// Distance back to the FPDU's length field in the stream; 0 if the marker stands right before
    /// it.
    pub fpduptr: u16,
}

impl Marker {
    /// The four bytes of the marker.
    pub const fn bytes(self) -> [u8; 4] {
        let [high, low] = self.fpduptr.to_be_bytes();
        [0, 0, high, low]
    }
}

/// The markers of one FPDU, in order.
#[derive(Clone, Debug)]
pub struct MarkerPlan {
    /// Unmarked offset of the next marker.
    next: u32,
    /// Markers that stand behind the length field so far.
    behind: u32,
    len: u32,
}

impl MarkerPlan {
    /// Bytes of FPDU between two markers.
    const STEP: u16 = MARKER_INTERVAL - MARKER_LEN;

    /// For an FPDU of `len` bytes that starts `position` bytes after a place where a marker is due.
    pub(super) fn new(position: u16, len: u32) -> Self {
        let next = match position {
            0 => 0,
            _ => u32::from(MARKER_INTERVAL.saturating_sub(position)),
        };
        Self {
            next,
            behind: 0,
            len,
        }
    }

    pub(super) const fn none() -> Self {
        Self {
            next: 0,
            behind: 0,
            len: 0,
        }
    }

    /// How many markers are left.
    pub fn remaining(&self) -> u32 {
        match self.len.checked_sub(self.next) {
            None => 0,
            Some(span) => span.div_ceil(u32::from(Self::STEP)),
        }
    }
}

impl Iterator for MarkerPlan {
    type Item = Marker;

    fn next(&mut self) -> Option<Marker> {
        if self.next >= self.len {
            return None;
        }
        let at = self.next;
        let distance = at.saturating_add(self.behind.saturating_mul(u32::from(MARKER_LEN)));
        if at != 0 {
            self.behind = self.behind.saturating_add(1);
        }
        self.next = at.saturating_add(u32::from(Self::STEP));
        Some(Marker {
            at,
            fpduptr: u16::try_from(distance).unwrap_or(u16::MAX),
        })
    }
}
