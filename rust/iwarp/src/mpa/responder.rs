// SPDX-License-Identifier: GPL-2.0

//! The side that answers a Request Frame.

use super::{
    collector::Collector,
    known_revision,
    max_private,
    Config,
    Established,
    Negotiated,
    PeerDepth,
    Request,
    Rtr,
    RtrKind,
    RtrSet, //
};
use crate::{
    error::{
        Error,
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

/// The side that answers a Request Frame.
#[derive(Clone, Debug)]
pub struct Responder {
    config: Config,
    rx: Collector,
    request: Option<(Frame, Option<Enhanced>)>,
    offer: Option<Offer>,
}

impl Responder {
    /// Starts a handshake.
    pub fn new(config: Config) -> Self {
        let wire_max = IRD_ORD_MANUAL.saturating_sub(1);
        let rtr = if config.rtr.is_empty() {
            RtrSet::ALL
        } else {
            config.rtr
        };
        Self {
            config: Config {
                max_ird: config.max_ird.min(wire_max),
                max_ord: config.max_ord.min(wire_max),
                rtr,
                ..config
            },
            rx: Collector::new(),
            request: None,
            offer: None,
        }
    }

    /// Bytes of the request still missing, as far as known; 0 when it is whole.
    pub fn need(&self) -> usize {
        self.rx.need()
    }

    /// Takes bytes of the request, at most [`Self::need`]; yields it when it is whole. After an
    /// error the connection is closed without a reply (RFC 5044 7.1.2).
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Request>, MpaError> {
        let check = |frame: &Frame| match frame.kind {
            FrameKind::Request => known_revision(frame.revision),
            FrameKind::Reply => Err(MpaError::Key),
        };
        let Some(frame) = self.rx.feed(bytes, check)? else {
            return Ok(None);
        };
        // The bit is reserved in revision 1 and not to be checked there.
        let data = if frame.enhanced && frame.revision >= 2 {
            Some(Enhanced::parse(self.rx.private())?)
        } else {
            None
        };
        self.request = Some((frame, data));
        let suggest = |asked: Option<u16>, max: u16| match asked {
            Some(asked) if asked != IRD_ORD_MANUAL => asked.min(max),
            _ => max,
        };
        let peer = PeerDepth {
            ird: data.map(|d| d.ird),
            ord: data.map(|d| d.ord),
        };
        Ok(Some(Request {
            revision: frame.revision,
            enhanced: data.is_some(),
            p2p: data.is_some_and(|d| d.p2p),
            peer,
            ird: suggest(peer.ord, self.config.max_ird),
            ord: suggest(peer.ird, self.config.max_ord),
        }))
    }

    /// Private data of the peer's ULP; whole once [`Self::feed`] has given a request.
    pub fn private_data(&self) -> &[u8] {
        self.rx.ulp_private(self.enhanced())
    }

    fn enhanced(&self) -> bool {
        matches!(self.request, Some((_, Some(_))))
    }

    /// Most private data [`Self::accept`] and [`Self::reject`] take.
    pub fn max_private(&self) -> usize {
        max_private(self.enhanced())
    }

    /// Whether [`Self::accept`] with so many bytes of private data can offer a session: the peer
    /// understands it, this side wants it, and there is room.
    pub fn may_offer(&self, private: usize) -> bool {
        let asked = self.request.is_some_and(|(frame, _)| frame.resume);
        let room = self.max_private().saturating_sub(Offer::LEN);
        self.config.resume && asked && private <= room
    }

    /// What [`Self::accept`] offers if it may.
    pub fn offer(&mut self, offer: Offer) {
        self.offer = Some(offer);
    }

    fn reply(&self, request: &Frame, reject: bool) -> Frame {
        Frame {
            kind: FrameKind::Reply,
            markers: false,
            // Saying "yes" when the peer did keeps it simple for initiators that look at the reply
            // alone.
            crc: self.config.crc || request.crc,
            reject,
            enhanced: false,
            large: self.config.large_fpdus && request.large,
            send_imm: self.config.send_imm && request.send_imm,
            resume: false,
            revision: request.revision,
            pd_len: 0,
        }
    }

    /// Writes an accepting Reply Frame; returns its length and the connection.
    ///
    /// `ird` and `ord` are what the local ULP asks for. With an enhanced request `ord` is cut to
    /// what the peer serves and `ird` raised to what it asks for, within our limit; values the
    /// peer does not want negotiated stay (RFC 6581 9.1). [`Error::State`] before there is a
    /// request, [`Error::Buffer`] if `out` is too small or `private` too long.
    pub fn accept(
        &self,
        ird: u16,
        ord: u16,
        private: &[u8],
        out: &mut [u8],
    ) -> Result<(usize, Established)> {
        let (frame, data) = self.request.ok_or(Error::State)?;
        let net = Negotiated {
            crc: self.config.crc || frame.crc,
            tx_markers: frame.markers,
            large_fpdus: self.config.large_fpdus && frame.large,
            send_imm: self.config.send_imm && frame.send_imm,
            revision: frame.revision,
            enhanced: data.is_some(),
        };
        let mut established = Established {
            net,
            ird: ird.min(self.config.max_ird),
            ord: ord.min(self.config.max_ord),
            peer: PeerDepth::default(),
            rtr: Rtr::None,
            hold_tx: true,
            session: self.offer.filter(|_| self.may_offer(private.len())),
        };
        let reply = data.map(|data| self.agree(&data, &mut established));
        let offer = established.session.map(|offer| offer.emit());
        let offer = offer.as_ref().map_or(&[][..], |offer| offer);
        let len = emit_frame(&self.reply(&frame, false), reply, [private, offer], out)?;
        Ok((len, established))
    }

    /// Settles depths and RTR, and says what the reply carries.
    fn agree(&self, data: &Enhanced, established: &mut Established) -> Enhanced {
        let mut rtr = RtrSet::NONE;
        if data.p2p {
            rtr = data.rtr.intersect(self.config.rtr);
            if rtr.is_empty() {
                rtr = self.config.rtr;
            }
        }
        established.peer = PeerDepth {
            ird: Some(data.ird),
            ord: Some(data.ord),
        };
        if data.ord != IRD_ORD_MANUAL {
            established.ird = established.ird.max(data.ord.min(self.config.max_ird));
        }
        if data.ird != IRD_ORD_MANUAL {
            established.ord = established.ord.min(data.ird);
        }
        if rtr.contains(RtrKind::Read) && established.ird == 0 {
            if self.config.max_ird == 0 {
                rtr = rtr.without(RtrKind::Read);
            } else {
                // Room for the zero-length Read (RFC 6581 9.1).
                established.ird = 1;
            }
        }
        if data.p2p {
            established.rtr = Rtr::Expect(rtr);
        }
        let manual = |theirs: u16, ours: u16| match theirs {
            IRD_ORD_MANUAL => IRD_ORD_MANUAL,
            _ => ours,
        };
        Enhanced {
            p2p: data.p2p,
            rtr,
            ird: manual(data.ord, established.ird),
            ord: manual(data.ird, established.ord),
        }
    }

    /// Writes a rejecting Reply Frame and returns its length.
    ///
    /// With an enhanced request it carries the depths this side could offer. Errors as
    /// [`Self::accept`].
    pub fn reject(&self, private: &[u8], out: &mut [u8]) -> Result<usize> {
        let (frame, data) = self.request.ok_or(Error::State)?;
        let reply = data.map(|data| Enhanced {
            p2p: data.p2p,
            rtr: self.config.rtr,
            ird: data.ord.min(self.config.max_ird),
            ord: data.ird.min(self.config.max_ord),
        });
        emit_frame(&self.reply(&frame, true), reply, [private, &[]], out)
    }
}
