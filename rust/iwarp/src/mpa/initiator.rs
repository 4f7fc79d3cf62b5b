// SPDX-License-Identifier: GPL-2.0

//! The side that sends the Request Frame.

use super::{
    collector::Collector,
    known_revision,
    max_private,
    Config,
    Established,
    Negotiated,
    PeerDepth,
    Reply,
    Revision,
    Rtr,
    RtrKind, //
};
use crate::{
    error::{
        MpaError,
        Result, //
    },
    wire::{
        mpa::{
            emit_frame,
            Enhanced,
            Frame,
            FrameKind,
            IRD_ORD_MANUAL, //
        },
        session::Offer, //
    }, //
};

/// The side that sends the Request Frame.
#[derive(Clone, Debug)]
pub struct Initiator {
    config: Config,
    rx: Collector,
    negotiated: Option<Negotiated>,
    peer: PeerDepth,
    reply_enhanced: bool,
    /// The reply is not a rejection.
    accepted: bool,
}

impl Initiator {
    /// Starts a handshake. Read depths above the limits or above what the wire can say are cut.
    pub fn new(config: Config) -> Self {
        let wire_max = IRD_ORD_MANUAL.saturating_sub(1);
        Self {
            config: Config {
                ird: config.ird.min(config.max_ird).min(wire_max),
                ord: config.ord.min(config.max_ord).min(wire_max),
                ..config
            },
            rx: Collector::new(),
            negotiated: None,
            peer: PeerDepth::default(),
            reply_enhanced: false,
            accepted: false,
        }
    }

    fn enhanced(&self) -> bool {
        self.config.revision == Revision::Two
    }

    /// Most private data [`Self::request`] takes.
    pub fn max_private(&self) -> usize {
        max_private(self.enhanced())
    }

    /// Writes the Request Frame and returns its length.
    /// [`Error::Buffer`](crate::error::Error::Buffer) if `out` is too small or `private` too long.
    pub fn request(&self, private: &[u8], out: &mut [u8]) -> Result<usize> {
        let frame = Frame {
            kind: FrameKind::Request,
            markers: false,
            crc: self.config.crc,
            reject: false,
            enhanced: self.enhanced(),
            large: self.config.large_fpdus,
            send_imm: self.config.send_imm,
            resume: self.config.resume,
            revision: self.config.revision.to_wire(),
            pd_len: 0,
        };
        let enhanced = self.enhanced().then_some(Enhanced {
            p2p: !self.config.rtr.is_empty(),
            rtr: self.config.rtr,
            ird: self.config.ird,
            ord: self.config.ord,
        });
        emit_frame(&frame, enhanced, [private, &[]], out)
    }

    /// Bytes of the reply still missing, as far as known; 0 when it is whole.
    pub fn need(&self) -> usize {
        self.rx.need()
    }

    /// Takes bytes of the reply, at most [`Self::need`]; yields it when it is whole.
    ///
    /// After [`MpaError::InsufficientIrd`] and [`MpaError::NoMatchingRtr`] the peer is owed a
    /// Terminate, sent as an FPDU with the settings [`Self::negotiated`] gives. After any other
    /// error the connection is closed at once.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Reply>, MpaError> {
        let check = |frame: &Frame| match frame.kind {
            FrameKind::Request => Err(MpaError::BothInitiators),
            FrameKind::Reply => known_revision(frame.revision),
        };
        match self.rx.feed(bytes, check)? {
            Some(frame) => self.judge(&frame).map(Some),
            None => Ok(None),
        }
    }

    fn judge(&mut self, frame: &Frame) -> Result<Reply, MpaError> {
        let data = if frame.enhanced && frame.revision >= 2 {
            Enhanced::parse(self.rx.private())
        } else {
            Err(MpaError::Downgrade)
        };
        self.reply_enhanced = data.is_ok();
        if let Ok(data) = data {
            self.peer = PeerDepth {
                ird: Some(data.ird),
                ord: Some(data.ord),
            };
        }
        if frame.reject {
            return Ok(Reply::Rejected(self.peer));
        }
        self.accepted = true;
        let net = Negotiated {
            crc: self.config.crc || frame.crc,
            tx_markers: frame.markers,
            large_fpdus: self.config.large_fpdus && frame.large,
            send_imm: self.config.send_imm && frame.send_imm,
            revision: frame.revision,
            enhanced: self.enhanced(),
        };
        let mut established = Established {
            net,
            ird: self.config.ird,
            ord: self.config.ord,
            peer: self.peer,
            rtr: Rtr::None,
            hold_tx: false,
            session: self.offer().map(|(_, offer)| offer),
        };
        if !self.enhanced() {
            if frame.enhanced && frame.revision >= 2 {
                // S = 0 in the request must be S = 0 in the reply (RFC 6581 10). In revision 1 the
                // bit is a reserved one and not to be checked.
                return Err(MpaError::EnhancedData);
            }
            self.negotiated = Some(net);
            return Ok(Reply::Accepted(established));
        }
        let data = data?;
        self.negotiated = Some(net);
        if data.ord != IRD_ORD_MANUAL {
            if data.ord > self.config.max_ird {
                return Err(MpaError::InsufficientIrd);
            }
            established.ird = established.ird.max(data.ord);
        }
        if data.ird != IRD_ORD_MANUAL {
            established.ord = established.ord.min(data.ird);
        }
        if !self.config.rtr.is_empty() {
            let kind = self.choose_rtr(&data)?;
            if kind == RtrKind::Read {
                // The Read takes a slot, even if the ULP wants none.
                established.ord = established.ord.max(1);
            }
            established.rtr = Rtr::Emit(kind);
        }
        Ok(Reply::Accepted(established))
    }

    /// Write first: it costs the peer nothing. Send last: a peer that does not swallow it would
    /// lose a receive buffer.
    fn choose_rtr(&self, data: &Enhanced) -> Result<RtrKind, MpaError> {
        let common = self.config.rtr.intersect(data.rtr);
        if common.contains(RtrKind::Write) {
            Ok(RtrKind::Write)
        } else if common.contains(RtrKind::Read) && data.ird != 0 && self.config.max_ord != 0 {
            Ok(RtrKind::Read)
        } else if common.contains(RtrKind::Send) {
            Ok(RtrKind::Send)
        } else {
            Err(MpaError::NoMatchingRtr)
        }
    }

    /// Private data of the peer's ULP, without the offer of a session; whole once [`Self::feed`]
    /// has given a reply.
    pub fn private_data(&self) -> &[u8] {
        match self.offer() {
            Some((private, _)) => private,
            None => self.rx.ulp_private(self.reply_enhanced),
        }
    }

    /// What is in front of the offer of a session, and the offer.
    fn offer(&self) -> Option<(&[u8], Offer)> {
        if !self.config.resume || !self.accepted {
            return None;
        }
        Offer::split(self.rx.ulp_private(self.reply_enhanced))
    }

    /// How FPDUs are made, once an accepting reply is in; also when the negotiation then failed.
    pub const fn negotiated(&self) -> Option<Negotiated> {
        self.negotiated
    }

    /// Read depths the peer sent, once a reply is in; also when the negotiation then failed.
    pub const fn peer(&self) -> PeerDepth {
        self.peer
    }
}
