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
        AtomicResponse,
        Header,
        Opcode,
        With, //
    }, //
};

/// A message of which some segments have come in. Tagged and untagged messages have one each:
/// segments of one kind may stand between those of the other. C siw sends and accepts such streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) opcode: Opcode,
    pub(super) done: u32,
    /// What comes with a Send.
    pub(super) with: With,
    /// The STag that a Write writes to.
    pub(super) stag: Option<Stag>,
}

impl RxMachine {
    /// The header of the current Atomic Response.
    pub(super) fn atomic_response(&self) -> Result<AtomicResponse> {
        match Header::parse(self.header_bytes())? {
            (_, Header::AtomicResponse(_, response)) => Ok(response),
            _ => Err(Error::State),
        }
    }

    /// Counts the segment into the message it belongs to.
    #[inline]
    pub(super) fn complete(&mut self) -> Result<Event> {
        let Segment { opcode, last, .. } = self.segment;
        let len = self
            .segment
            .offset
            .saturating_add(u32::from(self.segment.len));
        let partial = |with, stag| {
            Some(Progress {
                opcode,
                done: len,
                with,
                stag,
            })
        };
        let take = |next: &mut u32| {
            let msn = *next;
            *next = msn.wrapping_add(1);
            msn
        };
        Ok(match self.segment.kind {
            Kind::Send(with) if !last => {
                self.send = partial(with, None);
                Event::Partial
            }
            Kind::Send(with) => {
                let msn = take(&mut self.send_msn);
                self.send = None;
                if self.segment.rtr {
                    return Ok(Event::Rtr);
                }
                let se = opcode.is_solicited();
                Event::Send { len, se, with, msn }
            }
            Kind::Immediate => {
                let msn = take(&mut self.send_msn);
                match Header::parse(self.header_bytes())? {
                    (_, Header::Immediate { data, se, .. }) => Event::Immediate { data, se, msn },
                    _ => return Err(Error::State),
                }
            }
            Kind::Write(tagged) if !last => {
                let known = self.tagged.and_then(|progress| progress.stag);
                let named = (self.segment.len != 0).then_some(tagged.stag);
                self.tagged = partial(With::Nothing, known.or(named));
                Event::Partial
            }
            Kind::Write(_) => {
                self.tagged = None;
                Event::Write { len }
            }
            Kind::ReadResponse(_) if !last => {
                self.tagged = partial(With::Nothing, None);
                Event::Partial
            }
            Kind::ReadResponse(_) => {
                self.tagged = None;
                Event::ReadResponse { len }
            }
            Kind::ReadRequest => {
                let msn = take(&mut self.read_msn);
                match Header::parse(self.header_bytes())? {
                    (_, Header::ReadRequest(_, request)) => Event::ReadRequest { msn, request },
                    _ => return Err(Error::State),
                }
            }
            Kind::AtomicRequest => {
                let msn = take(&mut self.read_msn);
                match Header::parse(self.header_bytes())? {
                    (_, Header::AtomicRequest(_, request)) => Event::AtomicRequest { msn, request },
                    _ => return Err(Error::State),
                }
            }
            Kind::AtomicResponse => {
                take(&mut self.atomic_response_msn);
                let original = self.atomic_response()?.original;
                Event::AtomicResponse { original }
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
