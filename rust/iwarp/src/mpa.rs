// SPDX-License-Identifier: GPL-2.0

//! The MPA start-up handshake (RFC 5044 7.1, RFC 6581) for both sides, without I/O.
//!
//! Bytes of the peer's frame go in with `feed`, in pieces of any size but never more than `need`
//! asks for: what follows the frame in the stream are FPDUs and stays with the caller. Frames to
//! send come out of `request`, `accept` and `reject`. Timeouts are the caller's.

use super::error::{Error, MpaError, Result};
use super::stag::Stag;
use super::stream_tx::Message;
use super::wire::bytes::put_at;
use super::wire::mpa::{
    emit_frame, Enhanced, Frame, FrameKind, ENHANCED_LEN, FRAME_LEN, IRD_ORD_MANUAL,
    MAX_PRIVATE_DATA,
};
pub use super::wire::mpa::{RtrKind, RtrSet};
use super::wire::rdmap::ReadRequest;

/// Longest start-up frame: room for the output of `request`, `accept` and `reject`.
pub const MAX_FRAME: usize = FRAME_LEN + MAX_PRIVATE_DATA;

/// Revision of MPA an initiator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    /// RFC 5044: no negotiation of read depths, no RTR.
    One,
    /// RFC 6581, with the enhanced data.
    Two,
}

impl Revision {
    const fn to_wire(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

/// What this side wants of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Revision to ask for. A responder follows the request.
    pub revision: Revision,
    /// Prefer CRCs. They are used if either side does (RFC 5044 7.1.1).
    pub crc: bool,
    /// Offer FPDUs larger than a TCP segment, and take up the offer of others. Both sides have to.
    pub large_fpdus: bool,
    /// Inbound Read depth wanted, as initiator.
    pub ird: u16,
    /// Outbound Read depth wanted, as initiator.
    pub ord: u16,
    /// Largest inbound Read depth this side can serve.
    pub max_ird: u16,
    /// Largest outbound Read depth this side can use.
    pub max_ord: u16,
    /// Initiator: ask for peer-to-peer mode and offer these RTR messages; the empty set does not
    /// ask. Responder: what it takes; the empty set stands for all.
    pub rtr: RtrSet,
}

/// Read depths as the peer sent them, to be shown to the ULP (RFC 6581 9.1). `None` without
/// enhanced data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PeerDepth {
    /// The peer's inbound depth; [`IRD_ORD_MANUAL`] is kept as it is.
    pub ird: Option<u16>,
    /// The peer's outbound depth.
    pub ord: Option<u16>,
}

/// How FPDUs are made on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// CRCs are made and checked, in both directions.
    pub crc: bool,
    /// The peer wants markers in what we send. We never ask for them in what we receive.
    pub tx_markers: bool,
    /// Both sides want FPDUs larger than a TCP segment.
    pub large_fpdus: bool,
    /// Revision of the peer's frame.
    pub revision: u8,
    /// Both frames have enhanced data.
    pub enhanced: bool,
}

/// What happens first on the established stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rtr {
    /// Nothing special.
    None,
    /// Initiator: this zero-length message goes out before any other FPDU (RFC 6581 5); see
    /// [`rtr_message`].
    Emit(RtrKind),
    /// Responder: the first FPDU is one of these.
    Expect(RtrSet),
}

/// An accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Established {
    /// CRC, markers, revision.
    pub net: Negotiated,
    /// Inbound Read depth of this side.
    pub ird: u16,
    /// Outbound Read depth of this side.
    pub ord: u16,
    /// What the peer said.
    pub peer: PeerDepth,
    /// RTR message to send or expect.
    pub rtr: Rtr,
    /// Send no FPDU before one has been received and found good: the responder's duty (RFC 5044
    /// 7.1.2).
    pub hold_tx: bool,
}

/// The peer's answer to our request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Go ahead.
    Accepted(Established),
    /// Refused by the peer's ULP; its reason is in the private data.
    Rejected(PeerDepth),
}

/// A connection request of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Revision of the request.
    pub revision: u8,
    /// It has enhanced data.
    pub enhanced: bool,
    /// The peer wants to open with an RTR message.
    pub p2p: bool,
    /// Read depths of the peer.
    pub peer: PeerDepth,
    /// Inbound depth that serves the peer, within our limit.
    pub ird: u16,
    /// Outbound depth the peer serves, within our limit.
    pub ord: u16,
}

/// The zero-length message of an RTR kind, and its length for
/// [`super::stream_tx::TxStream::begin`].
pub const fn rtr_message(kind: RtrKind) -> Message<'static> {
    match kind {
        RtrKind::Send => Message::Send {
            se: false,
            inv: None,
        },
        RtrKind::Write => Message::Write {
            stag: Stag::RTR,
            to: 0,
        },
        RtrKind::Read => Message::ReadRequest(ReadRequest {
            sink_stag: Stag::RTR,
            sink_to: 0,
            len: 0,
            source_stag: Stag::RTR,
            source_to: 0,
        }),
    }
}

/// Collects a frame and its private data.
#[derive(Clone, Debug)]
struct Collector {
    bytes: [u8; MAX_FRAME],
    have: usize,
    frame: Option<Frame>,
}

impl Collector {
    const fn new() -> Self {
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

    fn need(&self) -> usize {
        self.total().saturating_sub(self.have)
    }

    /// Appends bytes; the frame when it is whole. Bytes that no frame begins with are refused however
    /// few they are: their sender may wait for an answer. `check` judges the fixed part as soon as it
    /// is there.
    fn feed(
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
    fn private(&self) -> &[u8] {
        self.bytes.get(FRAME_LEN..self.have).unwrap_or(&[])
    }

    /// Private data of the ULP.
    fn ulp_private(&self, enhanced: bool) -> &[u8] {
        let skip = if enhanced { ENHANCED_LEN } else { 0 };
        self.private().get(skip..).unwrap_or(&[])
    }
}

const fn known_revision(revision: u8) -> Result<(), MpaError> {
    // Revision 0 is the RDMA consortium's, whose RDMAP version is another one too.
    match revision {
        1 | 2 => Ok(()),
        other => Err(MpaError::Revision(other)),
    }
}

/// The side that sends the Request Frame.
#[derive(Clone, Debug)]
pub struct Initiator {
    config: Config,
    rx: Collector,
    negotiated: Option<Negotiated>,
    peer: PeerDepth,
    reply_enhanced: bool,
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
        }
    }

    fn enhanced(&self) -> bool {
        self.config.revision == Revision::Two
    }

    /// Most private data [`Self::request`] takes.
    pub fn max_private(&self) -> usize {
        max_private(self.enhanced())
    }

    /// Writes the Request Frame and returns its length. [`Error::Buffer`] if `out` is too small or
    /// `private` too long.
    pub fn request(&self, private: &[u8], out: &mut [u8]) -> Result<usize> {
        let frame = Frame {
            kind: FrameKind::Request,
            markers: false,
            crc: self.config.crc,
            reject: false,
            enhanced: self.enhanced(),
            large: self.config.large_fpdus,
            revision: self.config.revision.to_wire(),
            pd_len: 0,
        };
        let enhanced = self.enhanced().then_some(Enhanced {
            p2p: !self.config.rtr.is_empty(),
            rtr: self.config.rtr,
            ird: self.config.ird,
            ord: self.config.ord,
        });
        emit_frame(&frame, enhanced, private, out)
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
        let net = Negotiated {
            crc: self.config.crc || frame.crc,
            tx_markers: frame.markers,
            large_fpdus: self.config.large_fpdus && frame.large,
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

    /// Private data of the peer's ULP; whole once [`Self::feed`] has given a reply.
    pub fn private_data(&self) -> &[u8] {
        self.rx.ulp_private(self.reply_enhanced)
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

const fn max_private(enhanced: bool) -> usize {
    if enhanced {
        MAX_PRIVATE_DATA - ENHANCED_LEN
    } else {
        MAX_PRIVATE_DATA
    }
}

/// The side that answers a Request Frame.
#[derive(Clone, Debug)]
pub struct Responder {
    config: Config,
    rx: Collector,
    request: Option<(Frame, Option<Enhanced>)>,
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
        };
        let reply = data.map(|data| self.agree(&data, &mut established));
        let len = emit_frame(&self.reply(&frame, false), reply, private, out)?;
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
        emit_frame(&self.reply(&frame, true), reply, private, out)
    }
}
