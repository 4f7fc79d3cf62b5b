// SPDX-License-Identifier: GPL-2.0

//! From segments to messages.

use super::{
    Event,
    Kind,
    Phase,
    RxMachine,
    Segment, //
};
use crate::{
    error::{
        Error,
        Result, //
    },
    mem::stag::Stag,
    wire::rdmap::{
        Header,
        Opcode, //
    }, //
};

/// A message of which some segments have come in. Tagged and untagged messages have one each:
/// segments of one kind may stand between those of the other. C siw sends and accepts such streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) opcode: Opcode,
    pub(super) done: u32,
    /// Of a Send the one to invalidate, of a Write the one that is written to.
    pub(super) stag: Option<Stag>,
}

impl RxMachine {
    /// Counts the segment into the message it belongs to.
    #[inline]
    pub(super) fn complete(&mut self) -> Result<Event> {
        let Segment { opcode, last, .. } = self.segment;
        let len = self
            .segment
            .offset
            .saturating_add(u32::from(self.segment.len));
        let partial = |stag| {
            Some(Progress {
                opcode,
                done: len,
                stag,
            })
        };
        Ok(match self.segment.kind {
            Kind::Send(inv) if !last => {
                self.send = partial(inv);
                Event::Partial
            }
            Kind::Send(inv) => {
                let msn = self.send_msn;
                self.send_msn = msn.wrapping_add(1);
                self.send = None;
                if self.segment.rtr {
                    return Ok(Event::Rtr);
                }
                let se = matches!(opcode, Opcode::SendSe | Opcode::SendSeInv);
                Event::Send { len, se, inv, msn }
            }
            Kind::Write(tagged) if !last => {
                let known = self.tagged.and_then(|progress| progress.stag);
                let named = (self.segment.len != 0).then_some(tagged.stag);
                self.tagged = partial(known.or(named));
                Event::Partial
            }
            Kind::Write(_) => {
                self.tagged = None;
                Event::Write { len }
            }
            Kind::ReadResponse(_) if !last => {
                self.tagged = partial(None);
                Event::Partial
            }
            Kind::ReadResponse(_) => {
                self.tagged = None;
                Event::ReadResponse { len }
            }
            Kind::ReadRequest => {
                let msn = self.read_msn;
                self.read_msn = msn.wrapping_add(1);
                match Header::parse(self.header_bytes())? {
                    (_, Header::ReadRequest(_, request)) => Event::ReadRequest { msn, request },
                    _ => return Err(Error::State),
                }
            }
            Kind::Terminate => {
                self.phase = Phase::Stopped;
                match Header::parse(self.header_bytes())? {
                    (_, Header::Terminate(_, term)) => Event::Terminate(term),
                    _ => return Err(Error::State),
                }
            }
        })
    }
}
