// SPDX-License-Identifier: GPL-2.0

//! The start-up: against any bytes it does what RFC 5044 and RFC 6581 say; two sides of it, however
//! they are set, agree.

use super::{
    pieces,
    Input, //
};
use iwarp::{
    error::{
        Error,
        MpaError, //
    },
    mpa::{
        Config,
        Established,
        Initiator,
        PeerDepth,
        Reply,
        Request,
        Responder,
        Revision,
        Rtr,
        RtrKind,
        RtrSet,
        MAX_FRAME, //
    }, //
};

const MANUAL: u16 = 0x3fff;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(3) {
        0 => any_reply(&mut input),
        1 => any_request(&mut input),
        _ => both(&mut input),
    }
}

fn depth(input: &mut Input<'_>) -> u16 {
    match input.below(4) {
        0 => input.u16() % 3,
        1 => MANUAL - 1 + input.u16() % 3,
        _ => input.u16(),
    }
}

fn config(input: &mut Input<'_>) -> Config {
    let mut rtr = RtrSet::NONE;
    for kind in [RtrSet::SEND, RtrSet::WRITE, RtrSet::READ] {
        if input.flag() {
            rtr = rtr.union(kind);
        }
    }
    let revision = if input.below(4) == 0 {
        Revision::One
    } else {
        Revision::Two
    };
    let flags = input.u8();
    Config {
        revision,
        crc: flags & 1 != 0,
        large_fpdus: flags & 2 != 0,
        send_imm: flags & 4 != 0,
        resume: flags & 8 != 0,
        ird: depth(input),
        ord: depth(input),
        max_ird: depth(input),
        max_ord: depth(input),
        rtr,
    }
}

/// A frame as RFC 5044 figure 5 and RFC 6581 figure 2 have it.
struct Plain<'a> {
    flags: u8,
    revision: u8,
    /// IRD and ORD words, if S is set and the revision has it.
    enhanced: Option<(u16, u16)>,
    private: &'a [u8],
}

impl<'a> Plain<'a> {
    fn new(frame: &'a [u8]) -> Self {
        let (flags, revision) = (frame[16], frame[17]);
        let private = &frame[20..];
        assert_eq!(private.len(), length(frame));
        if flags & 0x10 != 0 && revision >= 2 {
            let [a, b, c, d, ulp @ ..] = private else {
                panic!("too short for the enhanced data")
            };
            let words = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
            return Self {
                flags,
                revision,
                enhanced: Some(words),
                private: ulp,
            };
        }
        Self {
            flags,
            revision,
            enhanced: None,
            private,
        }
    }

    fn rtr(&self) -> [bool; 3] {
        let (ird, ord) = self.enhanced.unwrap();
        [ird & 0x4000 != 0, ord & 0x8000 != 0, ord & 0x4000 != 0]
    }

    fn p2p(&self) -> bool {
        self.enhanced.is_some_and(|(ird, _)| ird & 0x8000 != 0)
    }

    fn peer(&self) -> PeerDepth {
        PeerDepth {
            ird: self.enhanced.map(|(ird, _)| ird & MANUAL),
            ord: self.enhanced.map(|(_, ord)| ord & MANUAL),
        }
    }
}

fn length(frame: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([frame[18], frame[19]]))
}

/// What is wrong with these bytes as the start of a frame, seen from the side that gets it, and how
/// many of them show it; `None` if it is only not whole.
fn fault(bytes: &[u8], reply: bool) -> Option<(usize, MpaError)> {
    let keys = [b"MPA ID Req Frame", b"MPA ID Rep Frame"];
    let right = |n: usize| keys.iter().any(|key| key[..n] == bytes[..n]);
    if let Some(n) = (1..=bytes.len().min(16)).find(|n| !right(*n)) {
        return Some((n, MpaError::Key));
    }
    let head = bytes.get(..20)?;
    if length(head) > 512 {
        return Some((20, MpaError::PrivateDataLength));
    }
    match (&head[..16] == keys[1], reply) {
        (false, true) => return Some((20, MpaError::BothInitiators)),
        (true, false) => return Some((20, MpaError::Key)),
        _ => {}
    }
    match head[17] {
        1 | 2 => None,
        other => Some((20, MpaError::Revision(other))),
    }
}

/// Feeds `stream` in pieces, never more than is needed; how it ended and how many bytes it took.
fn feed<T>(
    stream: &[u8],
    lengths: &[u8],
    mut step: impl FnMut(&[u8]) -> (usize, Result<Option<T>, MpaError>),
) -> (usize, Result<Option<T>, MpaError>) {
    let mut taken = 0;
    for piece in pieces(stream, lengths) {
        let mut rest = piece;
        while !rest.is_empty() {
            let (n, result) = step(rest);
            taken += n;
            rest = &rest[n..];
            if !matches!(result, Ok(None)) {
                return (taken, result);
            }
            assert_ne!(n, 0);
        }
    }
    (taken, Ok(None))
}

fn feed_initiator(
    initiator: &mut Initiator,
    stream: &[u8],
    lengths: &[u8],
) -> (usize, Result<Option<Reply>, MpaError>) {
    feed(stream, lengths, |bytes| {
        let n = initiator.need().min(bytes.len());
        (n, initiator.feed(&bytes[..n]))
    })
}

fn feed_responder(
    responder: &mut Responder,
    stream: &[u8],
    lengths: &[u8],
) -> (usize, Result<Option<Request>, MpaError>) {
    feed(stream, lengths, |bytes| {
        let n = responder.need().min(bytes.len());
        (n, responder.feed(&bytes[..n]))
    })
}

fn any_reply(input: &mut Input<'_>) {
    let config = config(input);
    let lengths = input.take(4);
    let stream = &input.frame()[..];
    let mut initiator = Initiator::new(config);
    let (taken, result) = feed_initiator(&mut initiator, stream, lengths);
    let mut by_octet = Initiator::new(config);
    let slowly = feed_initiator(&mut by_octet, stream, &[1]);
    if let Some((n, error)) = fault(stream, true) {
        assert_eq!(slowly, (n, Err(error)));
        assert_eq!(result, Err(error));
        return;
    }
    assert_eq!(slowly, (taken, result));
    let whole = stream.get(..20).map(|head| 20 + length(head));
    let Some(frame) = whole.and_then(|len| stream.get(..len)) else {
        assert_eq!((taken, result), (stream.len(), Ok(None)));
        return;
    };
    assert_eq!(taken, frame.len());
    // One byte more would be of the first FPDU.
    assert_eq!(initiator.need(), 0);
    let two = config.revision == Revision::Two;
    let (s, rejected) = (frame[16] & 0x10 != 0, frame[16] & 0x20 != 0);
    let enhanced = s && frame[17] == 2;
    if enhanced && length(frame) < 4 {
        let expect = match (rejected, two) {
            (true, _) => Ok(Some(Reply::Rejected(PeerDepth::default()))),
            (false, _) => Err(MpaError::EnhancedData),
        };
        assert_eq!(result, expect);
        return;
    }
    let plain = Plain::new(frame);
    assert_eq!(initiator.private_data(), plain.private);
    assert_eq!(initiator.peer(), plain.peer());
    if rejected {
        assert_eq!(result, Ok(Some(Reply::Rejected(plain.peer()))));
        return;
    }
    // The bit is a reserved one in revision 1, not to be checked (RFC 5044 7.1.1).
    if two != enhanced {
        let expect = if two {
            MpaError::Downgrade
        } else {
            MpaError::EnhancedData
        };
        assert_eq!(result, Err(expect));
        return;
    }
    let net = initiator.negotiated().unwrap();
    assert_eq!(net.crc, config.crc || plain.flags & 0x40 != 0);
    assert_eq!(net.tx_markers, plain.flags & 0x80 != 0);
    // Not if the reply has what the request had.
    assert_eq!(net.large_fpdus, config.large_fpdus && plain.flags & 12 == 4);
    assert_eq!(net.send_imm, config.send_imm && plain.flags & 3 == 1);
    assert_eq!(net.revision, plain.revision);
    assert_eq!(net.enhanced, two);
    let limit = |value: u16, max: u16| value.min(max).min(MANUAL - 1);
    let (ird, ord) = (
        limit(config.ird, config.max_ird),
        limit(config.ord, config.max_ord),
    );
    if !two {
        let got = accepted(result);
        assert_eq!((got.ird, got.ord, got.rtr), (ird, ord, Rtr::None));
        return;
    }
    let peer = plain.peer();
    let (their_ird, their_ord) = (peer.ird.unwrap(), peer.ord.unwrap());
    let too_deep = their_ord != MANUAL && their_ord > config.max_ird;
    let ours = [RtrKind::Send, RtrKind::Write, RtrKind::Read].map(|k| config.rtr.contains(k));
    let theirs = plain.rtr();
    let read_fits = their_ird != 0 && config.max_ord != 0;
    let common = |i: usize| plain.p2p() && ours[i] && theirs[i] && (i != 2 || read_fits);
    let none_common = !config.rtr.is_empty() && !(0..3).any(common);
    if too_deep {
        assert_eq!(result, Err(MpaError::InsufficientIrd));
        return;
    }
    if none_common {
        assert_eq!(result, Err(MpaError::NoMatchingRtr));
        return;
    }
    let got = accepted(result);
    // RFC 6581 9.1: at least what the peer asks for, at most what it serves.
    if their_ord == MANUAL {
        assert_eq!(got.ird, ird);
    } else {
        assert_eq!(got.ird, ird.max(their_ord));
    }
    let read = match got.rtr {
        Rtr::None => false,
        Rtr::Emit(kind) => {
            assert!(common(kind as usize), "{kind:?}");
            kind == RtrKind::Read
        }
        Rtr::Expect(_) => panic!("an initiator waits for nothing"),
    };
    assert_eq!(got.rtr == Rtr::None, config.rtr.is_empty());
    let least = u16::from(read);
    if their_ird == MANUAL {
        assert_eq!(got.ord, ord.max(least));
    } else {
        assert_eq!(got.ord, ord.min(their_ird).max(least));
    }
    assert!(got.ord <= config.max_ord && got.ird <= config.max_ird);
    assert!(!got.hold_tx);
}

fn accepted(result: Result<Option<Reply>, MpaError>) -> Established {
    match result {
        Ok(Some(Reply::Accepted(established))) => established,
        other => panic!("{other:?}"),
    }
}

fn any_request(input: &mut Input<'_>) {
    let config = config(input);
    let (ird, ord) = (depth(input), depth(input));
    let private = input.take(6).repeat(usize::from(input.u8()) / 2);
    let lengths = input.take(4);
    let stream = &input.frame()[..];
    let mut responder = Responder::new(config);
    let mut out = [0; MAX_FRAME];
    assert_eq!(responder.accept(ird, ord, &[], &mut out), Err(Error::State));
    assert_eq!(responder.reject(&[], &mut out), Err(Error::State));
    let (taken, result) = feed_responder(&mut responder, stream, lengths);
    let mut by_octet = Responder::new(config);
    let slowly = feed_responder(&mut by_octet, stream, &[1]);
    if let Some((n, error)) = fault(stream, false) {
        assert_eq!(slowly, (n, Err(error)));
        assert_eq!(result, Err(error));
        return;
    }
    assert_eq!(slowly, (taken, result));
    let whole = stream.get(..20).map(|head| 20 + length(head));
    let Some(frame) = whole.and_then(|len| stream.get(..len)) else {
        assert_eq!((taken, result), (stream.len(), Ok(None)));
        return;
    };
    assert_eq!(taken, frame.len());
    assert_eq!(responder.need(), 0);
    if frame[16] & 0x10 != 0 && frame[17] == 2 && length(frame) < 4 {
        assert_eq!(result, Err(MpaError::EnhancedData));
        return;
    }
    let plain = Plain::new(frame);
    let request = result.unwrap().unwrap();
    assert_eq!(responder.private_data(), plain.private);
    assert_eq!(request.revision, plain.revision);
    assert_eq!(request.enhanced, plain.enhanced.is_some());
    assert_eq!(request.p2p, plain.p2p());
    assert_eq!(request.peer, plain.peer());
    assert!(request.ird <= config.max_ird && request.ord <= config.max_ord);

    let rejected = responder.reject(&private, &mut out);
    if private.len() > responder.max_private() {
        assert_eq!(rejected, Err(Error::Buffer));
        assert_eq!(
            responder.accept(ird, ord, &private, &mut out),
            Err(Error::Buffer)
        );
        return;
    }
    let len = rejected.unwrap();
    let reply = Plain::new(&out[..len]);
    assert_eq!(reply.flags & 0x20, 0x20);
    well_formed(&plain, &reply, &out[..len], &private);

    let (len, got) = responder.accept(ird, ord, &private, &mut out).unwrap();
    let reply = Plain::new(&out[..len]);
    assert_eq!(reply.flags & 0x20, 0);
    well_formed(&plain, &reply, &out[..len], &private);
    assert!(got.hold_tx);
    assert_eq!(got.net.crc, config.crc || plain.flags & 0x40 != 0);
    assert_eq!(got.net.tx_markers, plain.flags & 0x80 != 0);
    assert_eq!(
        got.net.large_fpdus,
        config.large_fpdus && plain.flags & 8 != 0
    );
    assert_eq!(got.net.send_imm, config.send_imm && plain.flags & 2 != 0);
    let bit = |on, bit| if on { bit } else { 0 };
    let says = bit(got.net.large_fpdus, 4) | bit(got.net.send_imm, 1);
    assert_eq!(reply.flags & 15, says);
    assert_eq!(got.peer, plain.peer());
    assert!(got.ird <= config.max_ird && got.ord <= config.max_ord);
    if let (Some(theirs), Some(told)) = (plain.enhanced, reply.enhanced) {
        let (their_ird, their_ord) = (theirs.0 & MANUAL, theirs.1 & MANUAL);
        let (told_ird, told_ord) = (told.0 & MANUAL, told.1 & MANUAL);
        if their_ird == MANUAL {
            assert_eq!(told_ord, MANUAL);
        } else {
            assert_eq!(told_ord, got.ord);
            assert!(got.ord <= their_ird);
        }
        if their_ord == MANUAL {
            assert_eq!(told_ird, MANUAL);
        } else {
            assert_eq!(told_ird, got.ird);
        }
        assert_eq!(reply.p2p(), plain.p2p());
        match got.rtr {
            Rtr::Expect(set) => {
                assert!(plain.p2p());
                let kinds = [RtrKind::Send, RtrKind::Write, RtrKind::Read];
                assert_eq!(kinds.map(|kind| set.contains(kind)), reply.rtr());
                // The zero-length Read needs a place.
                assert!(!set.contains(RtrKind::Read) || got.ird != 0);
            }
            other => assert_eq!((other, plain.p2p()), (Rtr::None, false)),
        }
    }
}

/// A reply has what RFC 5044 7.1.1 and RFC 6581 9 want of one to this request.
fn well_formed(request: &Plain<'_>, reply: &Plain<'_>, bytes: &[u8], private: &[u8]) {
    assert_eq!(&bytes[..16], b"MPA ID Rep Frame");
    // No markers are asked for, and reserved bits are zero, but for two that answer two others.
    assert_eq!(reply.flags & 0x8a, 0);
    assert!(reply.flags & 4 == 0 || request.flags & 8 != 0);
    assert!(reply.flags & 1 == 0 || request.flags & 2 != 0);
    assert_eq!(reply.revision, request.revision);
    assert_eq!(reply.enhanced.is_some(), request.enhanced.is_some());
    assert_eq!(reply.flags & 0x10 != 0, request.enhanced.is_some());
    assert_eq!(reply.private, private);
    if !reply.p2p() && reply.enhanced.is_some() {
        assert_eq!(reply.rtr(), [false; 3]);
    }
}

fn both(input: &mut Input<'_>) {
    let (ours, theirs) = (config(input), config(input));
    let (ird, ord) = (depth(input), depth(input));
    let hello = input.take(6).repeat(usize::from(input.u8()) / 4);
    let welcome = input.take(6).repeat(usize::from(input.u8()) / 4);
    let lengths = input.take(4);
    let refuse = input.below(8) == 0;
    let mut out = [0; MAX_FRAME];

    let mut initiator = Initiator::new(ours);
    assert!(hello.len() <= initiator.max_private());
    let len = initiator.request(&hello, &mut out).unwrap();
    let mut responder = Responder::new(theirs);
    let (taken, request) = feed_responder(&mut responder, &out[..len], lengths);
    assert_eq!(taken, len);
    let request = request.unwrap().unwrap();
    assert_eq!(responder.private_data(), hello);
    assert_eq!(request.enhanced, ours.revision == Revision::Two);
    assert_eq!(request.p2p, request.enhanced && !ours.rtr.is_empty());

    if refuse {
        let len = responder.reject(&welcome, &mut out).unwrap();
        let (_, reply) = feed_initiator(&mut initiator, &out[..len], lengths);
        assert!(matches!(reply, Ok(Some(Reply::Rejected(_)))));
        assert_eq!(initiator.private_data(), welcome);
        return;
    }
    let (len, passive) = responder.accept(ird, ord, &welcome, &mut out).unwrap();
    let (taken, reply) = feed_initiator(&mut initiator, &out[..len], lengths);
    assert_eq!(taken, len);
    assert_eq!(initiator.private_data(), welcome);
    let active = match reply {
        Ok(Some(Reply::Accepted(active))) => active,
        // Nothing else can be wrong between two of us.
        Err(MpaError::NoMatchingRtr) => {
            assert!(request.p2p);
            let Rtr::Expect(set) = passive.rtr else {
                panic!("{:?}", passive.rtr)
            };
            let common = set.intersect(ours.rtr);
            let read_only = !common.contains(RtrKind::Send) && !common.contains(RtrKind::Write);
            assert!(read_only && (!common.contains(RtrKind::Read) || ours.max_ord == 0));
            return;
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(active.net, passive.net);
    assert_eq!(active.net.crc, ours.crc || theirs.crc);
    assert_eq!(
        active.net.large_fpdus,
        ours.large_fpdus && theirs.large_fpdus
    );
    assert_eq!(active.net.send_imm, ours.send_imm && theirs.send_imm);
    assert_eq!(active.net.enhanced, request.enhanced);
    if request.enhanced {
        assert!(active.ord <= passive.ird, "{active:?} {passive:?}");
        assert!(passive.ord <= active.ird, "{active:?} {passive:?}");
        assert_eq!(active.peer.ird, Some(passive.ird));
        assert_eq!(active.peer.ord, Some(passive.ord));
    }
    match (active.rtr, passive.rtr) {
        (Rtr::None, Rtr::None) => assert!(!request.p2p),
        (Rtr::Emit(kind), Rtr::Expect(set)) => {
            assert!(request.p2p && set.contains(kind));
            assert!(kind != RtrKind::Read || active.ord != 0 && passive.ird != 0);
        }
        other => panic!("{other:?}"),
    }
    assert!(passive.hold_tx && !active.hold_tx);
}
