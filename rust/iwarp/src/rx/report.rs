// SPDX-License-Identifier: GPL-2.0

//! The Terminate that answers an error (RFC 5040 4.8 and 7.1).

use super::{
    RxMachine,
    FIRST_STEP, //
};
use crate::{
    error::{
        AccessOp,
        Error, //
    },
    wire::{
        mpa::LENGTH_LEN,
        rdmap::{
            Header,
            Opcode,
            Preamble, //
        },
        terminate::{
            DdpCopy,
            Terminate, //
        }, //
    }, //
};

impl RxMachine {
    /// The Terminate that `error` asks for, with the headers of the current FPDU where they belong;
    /// `None` if no Terminate is due.
    ///
    /// To be called before another FPDU has begun: for errors of this machine, and for those the
    /// caller found about the segment, be it before [`Self::finish`] or because of its event.
    /// Figure 10 of RFC 5040 says what is included: nothing for local and for MPA errors,
    /// the DDP header and the segment's length for the rest, and the Read Request too for a
    /// protection error it caused (RFC 5040 7.1).
    pub fn terminate(&self, error: Error) -> Option<Terminate> {
        let code = error.terminate()?;
        let mut term = Terminate::bare(code);
        let about_segment = matches!(
            error,
            Error::DdpVersion { .. }
                | Error::InvalidQn
                | Error::NoBuffer
                | Error::MsnRange
                | Error::InvalidMo
                | Error::TooLong
                | Error::RdmapVersion
                | Error::Opcode
                | Error::Short
                | Error::NoReadSlot
                | Error::ResponseStag
                | Error::ResponseBounds
                | Error::ResponseId
                | Error::Unaligned
                | Error::WriteStag
                | Error::WriteBounds
        ) || matches!(
            error,
            Error::Access {
                op: AccessOp::Write
                    | AccessOp::ReadResponse
                    | AccessOp::ReadRequest
                    | AccessOp::AtomicRequest
                    | AccessOp::Invalidate,
                ..
            }
        );
        if !about_segment || self.received() < usize::from(FIRST_STEP) {
            return Some(term);
        }
        let bytes = self.header.get(..self.received()).unwrap_or(&[]);
        let Ok(preamble) = Preamble::parse(bytes) else {
            return Some(term);
        };
        term.ddp_len = Some(preamble.ulpdu);
        term.ddp = bytes
            .get(usize::from(LENGTH_LEN)..)
            .and_then(DdpCopy::from_bytes);
        if let (
            Error::Access {
                op: AccessOp::ReadRequest,
                ..
            },
            Ok((_, Header::ReadRequest(_, request))),
        ) = (error, Header::parse(bytes))
        {
            term.read = Some(request);
        }
        Some(term)
    }

    /// Header bytes in the buffer: of the current FPDU, or of the last one if no other has begun.
    fn received(&self) -> usize {
        if self.have != 0 {
            usize::from(self.have)
        } else {
            usize::from(self.header_kept())
        }
    }

    fn header_kept(&self) -> u16 {
        if self.first_fpdu {
            return 0;
        }
        match Preamble::parse(&self.header) {
            Ok(preamble) => Opcode::from_wire(preamble.control.opcode)
                .header_len()
                .unwrap_or(0),
            Err(_) => 0,
        }
    }
}
