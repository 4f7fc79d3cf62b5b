// SPDX-License-Identifier: GPL-2.0

//! The MPA start-up: both sides against each other, against peers that are old or odd, in pieces.

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
    },
    wire::mpa::{
        emit_frame,
        Enhanced,
        Frame,
        FrameKind, //
    }, //
};

const CONFIG: Config = Config {
    revision: Revision::Two,
    crc: true,
    large_fpdus: false,
    send_imm: false,
    resume: false,
    ird: 16,
    ord: 8,
    max_ird: 128,
    max_ord: 64,
    rtr: RtrSet::NONE,
};

fn request(initiator: &Initiator, private: &[u8]) -> Vec<u8> {
    let mut out = [0; MAX_FRAME];
    let len = initiator.request(private, &mut out).unwrap();
    out[..len].to_vec()
}

/// Feeds a frame as a socket would give it: `piece` bytes at most, never more than asked for.
fn asked(initiator: &mut Initiator, frame: &[u8], piece: usize) -> Result<Reply, MpaError> {
    let mut rest = frame;
    loop {
        let n = initiator.need().min(piece).min(rest.len());
        let (now, later) = rest.split_at(n);
        rest = later;
        if let Some(reply) = initiator.feed(now)? {
            assert_eq!(initiator.need(), 0);
            return Ok(reply);
        }
        assert!(n != 0, "frame too short");
    }
}

fn answered(responder: &mut Responder, frame: &[u8], piece: usize) -> Result<Request, MpaError> {
    let mut rest = frame;
    loop {
        let n = responder.need().min(piece).min(rest.len());
        let (now, later) = rest.split_at(n);
        rest = later;
        if let Some(request) = responder.feed(now)? {
            assert_eq!(responder.need(), 0);
            return Ok(request);
        }
        assert!(n != 0, "frame too short");
    }
}

fn accept(responder: &Responder, ird: u16, ord: u16, private: &[u8]) -> (Vec<u8>, Established) {
    let mut out = [0; MAX_FRAME];
    let (len, established) = responder.accept(ird, ord, private, &mut out).unwrap();
    (out[..len].to_vec(), established)
}

fn accepted(reply: Result<Reply, MpaError>) -> Established {
    match reply {
        Ok(Reply::Accepted(established)) => established,
        other => panic!("{other:?}"),
    }
}

/// Both sides of a connection; the passive ULP asks for `ird` and `ord`.
fn connect(active: Config, passive: Config, ird: u16, ord: u16) -> (Established, Established) {
    let mut initiator = Initiator::new(active);
    let mut responder = Responder::new(passive);
    answered(&mut responder, &request(&initiator, b"hello"), 1000).unwrap();
    assert_eq!(responder.private_data(), b"hello");
    let (frame, passive) = accept(&responder, ird, ord, b"welcome");
    let active = accepted(asked(&mut initiator, &frame, 1000));
    assert_eq!(initiator.private_data(), b"welcome");
    assert_eq!(initiator.negotiated(), Some(active.net));
    (active, passive)
}

#[test]
fn matrix() {
    let sets = [
        RtrSet::NONE,
        RtrSet::SEND,
        RtrSet::WRITE,
        RtrSet::READ,
        RtrSet::WRITE.union(RtrSet::READ),
        RtrSet::ALL,
    ];
    for revision in [Revision::One, Revision::Two] {
        for crc in [(false, false), (false, true), (true, false), (true, true)] {
            for offered in sets {
                for supported in sets {
                    let active = Config {
                        revision,
                        crc: crc.0,
                        rtr: offered,
                        ..CONFIG
                    };
                    let passive = Config {
                        crc: crc.1,
                        rtr: supported,
                        ..CONFIG
                    };
                    check_pair(active, passive);
                }
            }
        }
    }
}

fn check_pair(active: Config, passive: Config) {
    let mut initiator = Initiator::new(active);
    let mut responder = Responder::new(passive);
    let seen = answered(&mut responder, &request(&initiator, &[]), 1000).unwrap();
    let enhanced = active.revision == Revision::Two;
    let p2p = enhanced && !active.rtr.is_empty();
    assert_eq!((seen.enhanced, seen.p2p), (enhanced, p2p));
    let (frame, b) = accept(&responder, 4, 4, &[]);
    let supported = if passive.rtr.is_empty() {
        RtrSet::ALL
    } else {
        passive.rtr
    };
    let common = active.rtr.intersect(supported);

    let reply = asked(&mut initiator, &frame, 1000);
    if p2p && common.is_empty() {
        assert_eq!(reply, Err(MpaError::NoMatchingRtr));
        assert!(initiator.negotiated().is_some());
        // The responder still named what it has (RFC 6581 9.2).
        assert_eq!(b.rtr, Rtr::Expect(supported));
        return;
    }
    let a = accepted(reply);
    assert_eq!(a.net, b.net);
    assert_eq!(a.net.crc, active.crc || passive.crc);
    assert!(!a.net.tx_markers);
    assert!(!a.hold_tx && b.hold_tx);
    match (a.rtr, b.rtr) {
        (Rtr::None, Rtr::None) => assert!(!p2p),
        (Rtr::Emit(kind), Rtr::Expect(set)) => {
            assert!(p2p && common.contains(kind) && set.contains(kind));
            assert_eq!(set, common);
        }
        other => panic!("{other:?}"),
    }
    if enhanced {
        // RFC 6581 9.1, the relations after success.
        assert!(a.ord <= b.ird && b.ord <= a.ird, "{a:?} {b:?}");
        assert_eq!(
            b.peer,
            PeerDepth {
                ird: Some(16),
                ord: Some(8)
            }
        );
        assert_eq!(
            a.peer,
            PeerDepth {
                ird: Some(b.ird),
                ord: Some(b.ord)
            }
        );
    } else {
        assert_eq!((a.ird, a.ord, b.ird, b.ord), (16, 8, 4, 4));
        assert_eq!((a.peer, b.peer), Default::default());
    }
}

/// FPDUs larger than a segment take two that want them; the bit of one who does not is zero,
/// whatever the other's is.
#[test]
fn large_fpdus() {
    const LARGE: u8 = 0x08;
    const YES: u8 = 0x04;
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let active = Config {
            large_fpdus: ours,
            ..CONFIG
        };
        let passive = Config {
            large_fpdus: theirs,
            ..CONFIG
        };
        let (a, b) = connect(active, passive, 4, 4);
        assert_eq!(a.net.large_fpdus, ours && theirs);
        assert_eq!(b.net.large_fpdus, ours && theirs);

        let mut initiator = Initiator::new(active);
        let mut responder = Responder::new(passive);
        let asks = request(&initiator, &[]);
        assert_eq!(asks[16] & 0x0f, if ours { LARGE } else { 0 });
        answered(&mut responder, &asks, 1000).unwrap();
        let (mut says, _) = accept(&responder, 4, 4, &[]);
        assert_eq!(says[16] & 0x0f, if ours && theirs { YES } else { 0 });
        // A peer that keeps the reserved bits of the request, as the C driver does, has not agreed.
        says[16] = says[16] & 0xf0 | asks[16] & 0x0f;
        let established = accepted(asked(&mut initiator, &says, 1000));
        assert!(!established.net.large_fpdus);
        // Nor has one that sets all of them.
        says[16] |= 0x0f;
        let established = accepted(asked(&mut Initiator::new(active), &says, 1000));
        assert!(!established.net.large_fpdus);
    }
}

/// So are Sends with Immediate Data, with bits of their own: what is said about the one says
/// nothing about the other.
#[test]
fn sends_with_immediate_data() {
    for bits in 0..16 {
        let config = |large: u8, imm: u8| Config {
            large_fpdus: bits & large != 0,
            send_imm: bits & imm != 0,
            ..CONFIG
        };
        for revision in [Revision::One, Revision::Two] {
            let active = Config {
                revision,
                ..config(1, 2)
            };
            let passive = config(4, 8);
            let (large, imm) = (bits & 5 == 5, bits & 10 == 10);
            let (a, b) = connect(active, passive, 4, 4);
            for net in [a.net, b.net] {
                assert_eq!((net.large_fpdus, net.send_imm), (large, imm), "{bits:#x}");
            }

            let mut initiator = Initiator::new(active);
            let mut responder = Responder::new(passive);
            let asks = request(&initiator, &[]);
            let offers = |on, bit| if on { bit } else { 0 };
            let asked_for = offers(active.large_fpdus, 8) | offers(active.send_imm, 2);
            assert_eq!(asks[16] & 0x0f, asked_for);
            answered(&mut responder, &asks, 1000).unwrap();
            let (says, _) = accept(&responder, 4, 4, &[]);
            assert_eq!(says[16] & 0x0f, offers(large, 4) | offers(imm, 1));
            // A rejection agrees to nothing that was not offered either.
            let mut out = [0; MAX_FRAME];
            responder.reject(&[], &mut out).unwrap();
            assert_eq!(out[16] & 0x0f & !(asked_for >> 1), 0);

            // What an initiator makes of any reply: the bit that agrees counts where the bit that
            // asks has not come back with it.
            for reply in 0..16 {
                let mut says = says.clone();
                says[16] = says[16] & 0xf0 | reply;
                let net = accepted(asked(&mut initiator, &says, 1000)).net;
                let imm = active.send_imm && reply & 3 == 1;
                let large = active.large_fpdus && reply & 12 == 4;
                assert_eq!((net.large_fpdus, net.send_imm), (large, imm), "{reply:#x}");
                initiator = Initiator::new(active);
            }
        }
    }
}

#[test]
fn read_depths() {
    let depths = [0, 1, 7, 8, 64, 128, 200, 0x3ffe, 0x3fff];
    for ird in depths {
        for ord in depths {
            for (ulp_ird, ulp_ord) in [(0, 0), (1, 1), (5, 90), (128, 64), (0x3fff, 0x3fff)] {
                let active = Config {
                    ird,
                    ord,
                    max_ird: 256,
                    max_ord: 256,
                    ..CONFIG
                };
                let (a, b) = connect(active, CONFIG, ulp_ird, ulp_ord);
                assert!(a.ord <= b.ird && b.ord <= a.ird, "{a:?} {b:?}");
                assert!(b.ird <= 128 && b.ord <= 64 && a.ird <= 256 && a.ord <= 256);
                // Raised as far as the initiator wants, cut to what it serves.
                assert_eq!(b.ird, ulp_ird.max(ord.min(256)).min(128));
                assert_eq!(b.ord, ulp_ord.min(64).min(ird.min(256)));
            }
        }
    }
}

#[test]
fn a_request_suggests_depths() {
    let mut responder = Responder::new(CONFIG);
    let initiator = Initiator::new(Config {
        ird: 70,
        ord: 5,
        ..CONFIG
    });
    let seen = answered(&mut responder, &request(&initiator, &[]), 1000).unwrap();
    assert_eq!((seen.ird, seen.ord), (5, 64));
    let mut responder = Responder::new(CONFIG);
    let old = Initiator::new(Config {
        revision: Revision::One,
        ..CONFIG
    });
    let seen = answered(&mut responder, &request(&old, &[]), 1000).unwrap();
    assert_eq!((seen.revision, seen.ird, seen.ord), (1, 128, 64));
    assert_eq!(seen.peer, PeerDepth::default());
}

/// A frame of a peer that is not ours.
fn frame(kind: FrameKind, revision: u8, data: Option<Enhanced>, private: &[u8]) -> Vec<u8> {
    let frame = Frame {
        kind,
        markers: false,
        crc: false,
        reject: false,
        enhanced: false,
        large: false,
        send_imm: false,
        resume: false,
        revision,
        pd_len: 0,
    };
    let mut out = [0; MAX_FRAME];
    let len = emit_frame(&frame, data, [private, &[]], &mut out).unwrap();
    out[..len].to_vec()
}

fn data(ird: u16, ord: u16, rtr: RtrSet) -> Option<Enhanced> {
    Some(Enhanced {
        p2p: !rtr.is_empty(),
        rtr,
        ird,
        ord,
    })
}

#[test]
fn depths_not_to_be_negotiated() {
    // As responder (RFC 6581 9.1): own depths stay, and the reply says so.
    let mut responder = Responder::new(CONFIG);
    let wire = frame(
        FrameKind::Request,
        2,
        data(0x3fff, 0x3fff, RtrSet::NONE),
        &[],
    );
    let seen = answered(&mut responder, &wire, 1000).unwrap();
    assert_eq!((seen.ird, seen.ord), (128, 64));
    let (reply, b) = accept(&responder, 3, 4, &[]);
    assert_eq!((b.ird, b.ord), (3, 4));
    assert_eq!(
        Enhanced::parse(&reply[20..]).unwrap(),
        data(0x3fff, 0x3fff, RtrSet::NONE).unwrap()
    );
    // One of the two.
    let mut responder = Responder::new(CONFIG);
    let wire = frame(FrameKind::Request, 2, data(2, 0x3fff, RtrSet::NONE), &[]);
    answered(&mut responder, &wire, 1000).unwrap();
    let (reply, b) = accept(&responder, 3, 4, &[]);
    assert_eq!((b.ird, b.ord), (3, 2));
    assert_eq!(
        Enhanced::parse(&reply[20..]).unwrap(),
        data(0x3fff, 2, RtrSet::NONE).unwrap()
    );
    // As initiator.
    let mut initiator = Initiator::new(CONFIG);
    let wire = frame(FrameKind::Reply, 2, data(0x3fff, 0x3fff, RtrSet::NONE), &[]);
    let a = accepted(asked(&mut initiator, &wire, 1000));
    assert_eq!((a.ird, a.ord), (16, 8));
    assert_eq!(
        a.peer,
        PeerDepth {
            ird: Some(0x3fff),
            ord: Some(0x3fff)
        }
    );
}

#[test]
fn initiator_follows_the_reply() {
    let depths = |ird, ord| {
        let mut initiator = Initiator::new(CONFIG);
        let wire = frame(FrameKind::Reply, 2, data(ird, ord, RtrSet::NONE), &[]);
        (asked(&mut initiator, &wire, 1000), initiator)
    };
    let a = accepted(depths(4, 16).0);
    assert_eq!((a.ird, a.ord), (16, 4));
    // The responder reads deeper than we offered, but not deeper than we can.
    let a = accepted(depths(100, 100).0);
    assert_eq!((a.ird, a.ord), (100, 8));
    let (reply, initiator) = depths(100, 129);
    assert_eq!(reply, Err(MpaError::InsufficientIrd));
    assert!(initiator.negotiated().is_some());
    assert_eq!(
        initiator.peer(),
        PeerDepth {
            ird: Some(100),
            ord: Some(129)
        }
    );
    let code = Error::from(MpaError::InsufficientIrd).terminate().unwrap();
    assert_eq!((code.layer, code.etype, code.ecode), (2, 0, 6));
}

#[test]
fn initiator_chooses_a_message() {
    let choice = |offer: RtrSet, reply: RtrSet, ird, ord| {
        let mut initiator = Initiator::new(Config {
            rtr: offer,
            ord,
            ..CONFIG
        });
        let wire = frame(FrameKind::Reply, 2, data(ird, 1, reply), &[]);
        asked(&mut initiator, &wire, 1000).map(|reply| match reply {
            Reply::Accepted(e) => (e.rtr, e.ord),
            Reply::Rejected(_) => panic!(),
        })
    };
    let all = RtrSet::ALL;
    assert_eq!(choice(all, all, 4, 2), Ok((Rtr::Emit(RtrKind::Write), 2)));
    let no_write = all.without(RtrKind::Write);
    assert_eq!(
        choice(all, no_write, 4, 2),
        Ok((Rtr::Emit(RtrKind::Read), 2))
    );
    assert_eq!(
        choice(all, RtrSet::SEND, 4, 2),
        Ok((Rtr::Emit(RtrKind::Send), 2))
    );
    // A Read needs a slot on both sides.
    assert_eq!(
        choice(all, no_write, 0, 2),
        Ok((Rtr::Emit(RtrKind::Send), 0))
    );
    assert_eq!(
        choice(RtrSet::READ, all, 4, 0),
        Ok((Rtr::Emit(RtrKind::Read), 1))
    );
    assert_eq!(
        choice(RtrSet::READ, all, 0, 1),
        Err(MpaError::NoMatchingRtr)
    );
    // The peer forgot A, so its options do not count.
    assert_eq!(
        choice(all, RtrSet::NONE, 4, 2),
        Err(MpaError::NoMatchingRtr)
    );
    let code = Error::from(MpaError::NoMatchingRtr).terminate().unwrap();
    assert_eq!((code.layer, code.etype, code.ecode), (2, 0, 7));
    // We did not ask, so its options do not count either.
    assert_eq!(choice(RtrSet::NONE, all, 4, 2), Ok((Rtr::None, 2)));
}

#[test]
fn responder_makes_room_for_the_read() {
    let active = Config {
        rtr: RtrSet::READ,
        ord: 0,
        ..CONFIG
    };
    let (a, b) = connect(active, CONFIG, 0, 0);
    assert_eq!((b.ird, a.ord), (1, 1));
    assert_eq!(a.rtr, Rtr::Emit(RtrKind::Read));
    // None to be made: the other options are named.
    let mut responder = Responder::new(Config {
        max_ird: 0,
        ..CONFIG
    });
    let wire = frame(FrameKind::Request, 2, data(1, 0, RtrSet::ALL), &[]);
    answered(&mut responder, &wire, 1000).unwrap();
    let (_, b) = accept(&responder, 0, 0, &[]);
    assert_eq!(b.rtr, Rtr::Expect(RtrSet::SEND.union(RtrSet::WRITE)));
}

#[test]
fn markers_only_when_the_peer_asks() {
    let mut wire = frame(FrameKind::Request, 1, None, &[]);
    wire[16] |= 0x80;
    let mut responder = Responder::new(CONFIG);
    answered(&mut responder, &wire, 1000).unwrap();
    let (reply, b) = accept(&responder, 1, 1, &[]);
    assert!(b.net.tx_markers);
    assert_eq!(reply[16] & 0x80, 0);
    let mut initiator = Initiator::new(CONFIG);
    assert_eq!(request(&initiator, &[])[16] & 0x80, 0);
    let mut wire = frame(FrameKind::Reply, 2, data(1, 1, RtrSet::NONE), &[]);
    wire[16] |= 0x80;
    assert!(accepted(asked(&mut initiator, &wire, 1000)).net.tx_markers);
}

#[test]
fn reserved_bits_do_not_count() {
    let mut wire = frame(FrameKind::Request, 1, None, b"x");
    wire[16] |= 0x0f;
    // R is not to be checked in a request, and S was reserved in revision 1 (RFC 5044 7.1.1).
    wire[16] |= 0x30;
    let mut responder = Responder::new(CONFIG);
    let seen = answered(&mut responder, &wire, 1000).unwrap();
    assert!(!seen.enhanced);
    assert_eq!(responder.private_data(), b"x");
    let (reply, _) = accept(&responder, 1, 1, &[]);
    assert_eq!(reply[16..20], [0x40, 1, 0, 0]);
    // Revision 2 without S is answered in kind (RFC 6581 10).
    let mut responder = Responder::new(CONFIG);
    answered(
        &mut responder,
        &frame(FrameKind::Request, 2, None, &[]),
        1000,
    )
    .unwrap();
    let (reply, b) = accept(&responder, 1, 1, &[]);
    assert_eq!(reply[16..20], [0x40, 2, 0, 0]);
    assert!(!b.net.enhanced);
}

#[test]
fn rejection() {
    for revision in [Revision::One, Revision::Two] {
        let config = Config { revision, ..CONFIG };
        let mut initiator = Initiator::new(config);
        let mut responder = Responder::new(CONFIG);
        answered(&mut responder, &request(&initiator, b"please"), 1000).unwrap();
        let mut out = [0; MAX_FRAME];
        let len = responder.reject(b"not today", &mut out).unwrap();
        let reply = asked(&mut initiator, &out[..len], 1000).unwrap();
        let depth = match revision {
            Revision::One => PeerDepth::default(),
            Revision::Two => PeerDepth {
                ird: Some(8),
                ord: Some(16),
            },
        };
        assert_eq!(reply, Reply::Rejected(depth));
        assert_eq!(initiator.private_data(), b"not today");
    }
    // C siw rejects at once, with enhanced data that is all zero.
    let mut initiator = Initiator::new(CONFIG);
    let mut wire = frame(FrameKind::Reply, 2, data(0, 0, RtrSet::NONE), &[]);
    wire[16] |= 0x20;
    let depth = PeerDepth {
        ird: Some(0),
        ord: Some(0),
    };
    assert_eq!(
        asked(&mut initiator, &wire, 1000),
        Ok(Reply::Rejected(depth))
    );
    // An old peer's rejection is one too, whatever its form.
    let mut initiator = Initiator::new(CONFIG);
    let mut wire = frame(FrameKind::Reply, 1, None, b"no");
    wire[16] |= 0x20;
    assert_eq!(
        asked(&mut initiator, &wire, 1000),
        Ok(Reply::Rejected(PeerDepth::default()))
    );
    assert_eq!(initiator.private_data(), b"no");
}

#[test]
fn old_peers() {
    let reply = |wire: &[u8]| asked(&mut Initiator::new(CONFIG), wire, 1000);
    let down = reply(&frame(FrameKind::Reply, 1, None, &[])).unwrap_err();
    assert!(down == MpaError::Downgrade && down.may_downgrade());
    assert_eq!(
        reply(&frame(FrameKind::Reply, 2, None, &[])),
        Err(MpaError::Downgrade)
    );
    for revision in [0, 3, 129, 255] {
        let odd = frame(FrameKind::Reply, revision, None, &[]);
        assert_eq!(reply(&odd), Err(MpaError::Revision(revision)));
        let odd = frame(FrameKind::Request, revision, None, &[]);
        let got = answered(&mut Responder::new(CONFIG), &odd, 1000);
        assert_eq!(got, Err(MpaError::Revision(revision)));
    }
    // The second attempt.
    let old = Config {
        revision: Revision::One,
        ..CONFIG
    };
    let mut initiator = Initiator::new(old);
    assert_eq!(
        request(&initiator, b"pd")[16..],
        [0x40, 1, 0, 2, b'p', b'd']
    );
    let a = accepted(asked(
        &mut initiator,
        &frame(FrameKind::Reply, 1, None, &[]),
        1000,
    ));
    assert_eq!((a.ird, a.ord, a.rtr), (16, 8, Rtr::None));
    // What is S in revision 2 is a reserved bit here, not to be checked (RFC 5044 7.1.1).
    let mut reserved = frame(FrameKind::Reply, 1, None, &[]);
    reserved[16] |= 0x1f;
    let a = accepted(asked(&mut Initiator::new(old), &reserved, 1000));
    assert_eq!((a.ird, a.ord, a.net.enhanced), (16, 8, false));
    // S in the reply to a request without.
    let wire = frame(FrameKind::Reply, 2, data(1, 1, RtrSet::NONE), &[]);
    assert_eq!(
        asked(&mut Initiator::new(old), &wire, 1000),
        Err(MpaError::EnhancedData)
    );
}

#[test]
fn wrong_frames() {
    let mut initiator = Initiator::new(CONFIG);
    let both = request(&initiator, &[]);
    assert_eq!(
        asked(&mut initiator, &both, 1000),
        Err(MpaError::BothInitiators)
    );
    let reply = frame(FrameKind::Reply, 1, None, &[]);
    assert_eq!(
        answered(&mut Responder::new(CONFIG), &reply, 1000),
        Err(MpaError::Key)
    );
    let web = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(
        answered(&mut Responder::new(CONFIG), web, 1000),
        Err(MpaError::Key)
    );
    // As soon as the key differs: the sender may have no more to say.
    let reply = frame(FrameKind::Reply, 1, None, &[]);
    for at in 0..16 {
        let mut wrong = request(&Initiator::new(CONFIG), &[]);
        wrong[at] ^= 0x20;
        let mut responder = Responder::new(CONFIG);
        assert_eq!(responder.feed(&wrong[..at]), Ok(None));
        assert_eq!(responder.feed(&wrong[at..=at]), Err(MpaError::Key));
        let mut wrong = reply.clone();
        wrong[at] ^= 0x20;
        let mut initiator = Initiator::new(CONFIG);
        assert_eq!(initiator.feed(&wrong[..at]), Ok(None));
        assert_eq!(initiator.feed(&wrong[at..=at]), Err(MpaError::Key));
    }
    let mut long = frame(FrameKind::Request, 1, None, &[]);
    long[18..20].copy_from_slice(&513u16.to_be_bytes());
    assert_eq!(
        answered(&mut Responder::new(CONFIG), &long, 1000),
        Err(MpaError::PrivateDataLength)
    );
    // S without the four bytes.
    for len in 0..4 {
        let mut short = frame(FrameKind::Request, 2, None, &[1; 4][..len]);
        short[16] |= 0x10;
        assert_eq!(
            answered(&mut Responder::new(CONFIG), &short, 1000),
            Err(MpaError::EnhancedData)
        );
        let mut short = frame(FrameKind::Reply, 2, None, &[1; 4][..len]);
        short[16] |= 0x10;
        assert_eq!(
            asked(&mut Initiator::new(CONFIG), &short, 1000),
            Err(MpaError::EnhancedData)
        );
    }
    for error in [
        MpaError::Key,
        MpaError::Revision(3),
        MpaError::BothInitiators,
    ] {
        assert_eq!(Error::from(error).terminate(), None);
    }
}

#[test]
fn in_pieces_and_with_fpdus_behind() {
    for piece in 1..40 {
        let mut initiator = Initiator::new(CONFIG);
        let mut responder = Responder::new(CONFIG);
        let mut wire = request(&initiator, &[7; 300]);
        wire.extend([0xff; 50]);
        answered(&mut responder, &wire, piece).unwrap();
        assert_eq!(responder.private_data(), [7; 300]);
        let (mut wire, _) = accept(&responder, 1, 1, &[9; 508]);
        wire.extend([0xff; 50]);
        accepted(asked(&mut initiator, &wire, piece));
        assert_eq!(initiator.private_data(), [9; 508]);
    }
    // A caller that hands over more than was asked for would lose FPDUs: refused.
    let mut responder = Responder::new(CONFIG);
    let mut wire = request(&Initiator::new(CONFIG), b"abc");
    wire.push(0);
    assert_eq!(responder.feed(&wire), Err(MpaError::LocalCatastrophic));
    // But a whole frame in one piece is fine.
    let mut responder = Responder::new(CONFIG);
    wire.pop();
    assert!(responder.feed(&wire).unwrap().is_some());
}

#[test]
fn limits_of_private_data() {
    for (revision, max) in [(Revision::One, 512), (Revision::Two, 508)] {
        let initiator = Initiator::new(Config { revision, ..CONFIG });
        assert_eq!(initiator.max_private(), max);
        let mut out = [0; MAX_FRAME];
        assert_eq!(initiator.request(&[0; 512][..max], &mut out), Ok(MAX_FRAME));
        assert_eq!(
            initiator.request(&[0; 513][..max + 1], &mut out),
            Err(Error::Buffer)
        );
        assert_eq!(
            initiator.request(&[0; 512][..max], &mut out[1..]),
            Err(Error::Buffer)
        );
        let mut responder = Responder::new(CONFIG);
        answered(&mut responder, &request(&initiator, &[]), 1000).unwrap();
        assert_eq!(responder.max_private(), max);
        assert!(responder.accept(1, 1, &[0; 512][..max], &mut out).is_ok());
        assert!(responder
            .accept(1, 1, &[0; 513][..max + 1], &mut out)
            .is_err());
    }
    let early = Responder::new(CONFIG);
    assert_eq!(
        early.accept(1, 1, &[], &mut [0; 600]).unwrap_err(),
        Error::State
    );
    assert_eq!(early.reject(&[], &mut [0; 600]), Err(Error::State));
}
