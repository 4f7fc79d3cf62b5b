// SPDX-License-Identifier: GPL-2.0

//! Whatever comes in, nothing panics: random bytes, and good streams with a few bytes changed.
//!
//! These run with overflow checks, as the kernel does.

mod common;

use common::{
    crc32c,
    header,
    region,
    send,
    Receiver,
    Rng,
    BASE, //
};
use iwarp::{
    error::{
        AccessError,
        AccessOp,
        Error,
        MpaError, //
    },
    mem::{
        access::{
            check,
            check_invalidate,
            Access,
            Accessor,
            Consumer,
            Kind,
            Need,
            PdId,
            Region,
            Rights, //
        },
        atomic::AtomicOp,
        stag::Stag, //
    },
    mpa::{
        Config,
        Initiator,
        Responder,
        Revision,
        RtrSet,
        MAX_FRAME, //
    },
    rx::{
        Expect,
        ReadExpect, //
    },
    tx::{
        max_payload,
        message_cost,
        Message,
        TxStream, //
    },
    wire::{
        mpa::{
            mulpdu,
            Enhanced,
            Frame, //
        },
        rdmap::{
            AtomicResponse,
            Header,
            Preamble,
            ReadRequest,
            With, //
        },
        terminate::{
            DdpCopy,
            TermCode,
            Terminate, //
        }, //
    }, //
};

#[test]
fn parsers() {
    let mut rng = Rng::new(1);
    for _ in 0..200_000 {
        let len = rng.below(90) as usize;
        let mut bytes = rng.bytes(len);
        if len > 4 && rng.below(2) == 0 {
            // Versions and opcodes that are looked into.
            bytes[2] = bytes[2] & 0xc0 | 1;
            bytes[3] = 0x40 | bytes[3] & 0x1f;
        }
        let _ = Preamble::parse(&bytes);
        let _ = Frame::parse(&bytes);
        let _ = Enhanced::parse(&bytes);
        if let Some(copy) = DdpCopy::from_bytes(&bytes) {
            let _ = (copy.tagged(), copy.untagged(), copy.control());
        }
        if let Ok(term) = Terminate::parse(&bytes) {
            let mut out = [0; 72];
            let n = term.emit(&mut out).unwrap();
            assert_eq!(n, usize::from(term.len()));
            let again = Terminate::parse(&out[..n]).unwrap();
            assert_eq!(again.code.ecode, term.code.ecode);
        }
        if let Ok((preamble, header)) = Header::parse(&bytes) {
            let mut out = [0; 72];
            let _ = header.emit(preamble.ulpdu, true, &mut out);
            let n = header.emit(0, preamble.control.last, &mut out).unwrap();
            let (again, parsed) = Header::parse(&out[..n]).unwrap();
            assert_eq!(again.control.opcode, preamble.control.opcode);
            if !matches!(header, Header::Terminate(..)) {
                assert_eq!(parsed, header);
            }
        }
    }
}

fn with(rng: &mut Rng) -> With {
    match rng.below(3) {
        0 => With::Nothing,
        1 => With::Invalidate(region(0).stag),
        _ => With::Immediate((rng.next() as u32).to_be_bytes()),
    }
}

fn operation(rng: &mut Rng) -> AtomicOp {
    match rng.below(2) {
        0 => AtomicOp::FetchAdd {
            add: rng.next(),
            mask: rng.next(),
        },
        _ => AtomicOp::CmpSwap {
            compare: rng.next(),
            compare_mask: rng.next(),
            swap: rng.next(),
            swap_mask: rng.next(),
        },
    }
}

fn receiver(rng: &mut Rng, crc: bool) -> Receiver {
    let mut rx = Receiver::new(
        crc,
        if rng.below(2) == 0 {
            RtrSet::ALL
        } else {
            RtrSet::NONE
        },
    );
    for _ in 0..rng.below(4) {
        rx.orq.push(match rng.below(2) {
            0 => Expect::Atomic(rng.below(3) as u32),
            _ => Expect::Read(ReadExpect {
                stag: region(0).stag,
                to: BASE + rng.below(100),
                len: rng.below(500) as u32,
            }),
        });
    }
    rx
}

/// Feeds a stream in random pieces; every error has a Terminate that can be sent and read back.
fn feed(rng: &mut Rng, rx: &mut Receiver, stream: &[u8]) {
    let mut rest = stream;
    while !rest.is_empty() {
        let n = (1 + rng.below(60) as usize).min(rest.len());
        rx.feed(&rest[..n]);
        rest = &rest[n..];
    }
    if let Some(term) = rx.error.and_then(|error| rx.rx.terminate(error)) {
        let bytes = send(
            &mut TxStream::new(true, false),
            Message::Terminate(&term),
            &[],
            1442,
        );
        let mut peer = Receiver::new(true, RtrSet::NONE);
        peer.feed(&bytes);
        assert_eq!(peer.error, None);
        assert_eq!(peer.events, [iwarp::rx::Event::Terminate(term)]);
    }
}

#[test]
fn noise() {
    let mut rng = Rng::new(2);
    for _ in 0..20_000 {
        let mut rx = receiver(&mut rng, false);
        let len = rng.below(400) as usize;
        let mut stream = rng.bytes(len);
        if stream.len() > 4 {
            // A start that is believed.
            stream[0] = 0;
            stream[2] = stream[2] & 0xc0 | 1;
            stream[3] = 0x40 | stream[3] & 0x1f;
        }
        feed(&mut rng, &mut rx, &stream);
    }
}

#[test]
fn good_streams_gone_bad() {
    let mut rng = Rng::new(4);
    for round in 0..20_000 {
        let mut tx = TxStream::new(false, false);
        let mut stream = Vec::new();
        for _ in 0..1 + rng.below(4) {
            let stag = region(0).stag;
            let to = BASE + rng.below(100);
            let with = with(&mut rng);
            let terminate = Terminate::bare(TermCode::CATASTROPHIC);
            let message = match rng.below(8) {
                0 => Message::Write { stag, to },
                1 => Message::ReadResponse { stag, to },
                2 => Message::ReadRequest(ReadRequest {
                    sink_stag: stag,
                    sink_to: to,
                    len: 9,
                    source_stag: stag,
                    source_to: to,
                }),
                3 => Message::Terminate(&terminate),
                4 => Message::Immediate {
                    se: rng.below(2) == 0,
                    data: [1, 2, 3, 4],
                },
                5 => {
                    let op = operation(&mut rng);
                    Message::AtomicRequest { stag, to, op }
                }
                6 => Message::AtomicResponse(AtomicResponse {
                    id: rng.below(3) as u32,
                    original: rng.next(),
                }),
                _ => Message::Send {
                    se: rng.below(2) == 0,
                    with,
                },
            };
            let payload = match message {
                Message::ReadRequest(_)
                | Message::Terminate(_)
                | Message::Immediate { .. }
                | Message::AtomicRequest { .. }
                | Message::AtomicResponse(_) => Vec::new(),
                _ => {
                    let len = rng.below(500) as usize;
                    rng.bytes(len)
                }
            };
            stream.extend(send(
                &mut tx,
                message,
                &payload,
                128 + rng.below(300) as u16,
            ));
        }
        for _ in 0..rng.below(4) {
            let at = rng.below(stream.len() as u64) as usize;
            match rng.below(3) {
                0 => stream[at] ^= 1 << rng.below(8),
                1 => stream[at] = rng.next() as u8,
                _ => {
                    stream.remove(at);
                }
            }
        }
        let mut rx = receiver(&mut rng, round % 2 == 0);
        rx.buffer_len = rng.below(1000) as usize;
        feed(&mut rng, &mut rx, &stream);
    }
}

/// With CRCs, no changed FPDU is ever believed.
#[test]
fn changed_bits_are_found() {
    let mut rng = Rng::new(6);
    let plain = Message::Send {
        se: false,
        with: With::Nothing,
    };
    let good = send(&mut TxStream::new(true, false), plain, &rng.bytes(70), 1442);
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            let mut rx = Receiver::new(true, RtrSet::NONE);
            rx.feed(&bad);
            rx.feed(&[0; 300]);
            assert!(rx.events.is_empty(), "{at} {bit}");
        }
    }
}

#[test]
fn handshakes() {
    let mut rng = Rng::new(8);
    for _ in 0..50_000 {
        let config = Config {
            revision: if rng.below(2) == 0 {
                Revision::One
            } else {
                Revision::Two
            },
            crc: rng.below(2) == 0,
            large_fpdus: rng.below(2) == 0,
            send_imm: rng.below(2) == 0,
            resume: rng.below(2) == 0,
            ird: rng.next() as u16,
            ord: rng.next() as u16,
            max_ird: rng.next() as u16,
            max_ord: rng.next() as u16,
            rtr: [RtrSet::NONE, RtrSet::READ, RtrSet::ALL][rng.below(3) as usize],
        };
        let mut initiator = Initiator::new(config);
        let mut responder = Responder::new(config);
        let mut out = [0; MAX_FRAME];
        let len = initiator.request(&[], &mut out).unwrap();
        let mut bytes = out[..len].to_vec();
        if rng.below(2) == 0 {
            bytes[12] = b'e';
            bytes[10] = [b'q', b'p'][rng.below(2) as usize];
        }
        let extra = rng.below(30) as usize;
        bytes.extend(rng.bytes(extra));
        for _ in 0..rng.below(4) {
            let at = 16 + rng.below(bytes.len() as u64 - 16) as usize;
            bytes[at] = rng.next() as u8;
        }
        let _ = responder.feed(&bytes);
        let _ = (
            responder.private_data(),
            responder.need(),
            responder.max_private(),
        );
        let _ = responder.accept(rng.next() as u16, rng.next() as u16, &[1; 30], &mut out);
        let _ = responder.reject(&[], &mut out);
        let _ = responder.feed(&bytes);
        let _ = initiator.feed(&bytes);
        let _ = (
            initiator.private_data(),
            initiator.need(),
            initiator.negotiated(),
        );
        let _ = initiator.feed(&bytes);
    }
}

#[test]
fn senders() {
    let mut rng = Rng::new(10);
    for _ in 0..20_000 {
        let mut tx = TxStream::new(true, rng.below(2) == 0);
        let stag = Stag(rng.next() as u32);
        let to = rng.next();
        let message = match rng.below(6) {
            0 => Message::Write { stag, to },
            1 => Message::ReadResponse { stag, to },
            2 => Message::Immediate {
                se: false,
                data: [0xff; 4],
            },
            3 => Message::AtomicRequest {
                stag,
                to,
                op: operation(&mut rng),
            },
            4 => Message::AtomicResponse(AtomicResponse {
                id: u32::MAX,
                original: to,
            }),
            _ => Message::Send {
                se: false,
                with: with(&mut rng),
            },
        };
        let mut msg = tx.begin(message, rng.next() as u32);
        for _ in 0..20 {
            let Some(fpdu) = msg.fpdu(rng.next() as u16) else {
                break;
            };
            assert!(fpdu.stream_len() <= 64776 && fpdu.stream_len() % 4 == 0);
            let pointers: Vec<_> = tx.marker_plan(&fpdu).map(|m| (m.at, m.fpduptr)).collect();
            assert!(pointers.windows(2).all(|w| w[1].0 == w[0].0 + 508));
            assert!(pointers
                .iter()
                .all(|p| p.1 % 4 == 0 && u32::from(p.1) >= p.0));
            let _ = fpdu.trailer(Some(crc32c(&header(&msg, &fpdu))));
            tx.sent(&fpdu);
            msg.commit(&fpdu);
        }
        let (header, len, size) = (rng.next() as u16, rng.next() as u32, rng.next() as u16);
        let _ = message_cost(header, len, size);
        let _ = max_payload(header, size);
        let _ = mulpdu(rng.next() as u32, true);
        let read = ReadRequest {
            sink_stag: stag,
            sink_to: to,
            len: rng.next() as u32,
            source_stag: stag,
            source_to: rng.next(),
        };
        let term = Terminate::for_read(TermCode::CATASTROPHIC, 1, &read, rng.next() as u32);
        assert_eq!(term.len(), 52);
        let term = Terminate::for_atomic(TermCode::CATASTROPHIC, rng.next() as u32);
        assert_eq!(term.len(), 24);
        let _ = operation(&mut rng).apply(rng.next());
    }
}

#[test]
fn accesses() {
    let mut rng = Rng::new(12);
    let kinds = [Kind::Mr, Kind::FastMr, Kind::DmaMr, Kind::Mw1, Kind::Mw2];
    let needs = [
        Need::LocalRead,
        Need::LocalWrite,
        Need::RemoteRead,
        Need::RemoteWrite,
        Need::RemoteAtomic,
        Need::Bind,
    ];
    for _ in 0..200_000 {
        let mut small = |n: u64| {
            if rng.below(2) == 0 {
                rng.below(n)
            } else {
                rng.next()
            }
        };
        let region = Region {
            stag: Stag(small(1024) as u32),
            kind: kinds[(small(5) % 5) as usize],
            valid: small(2) % 4 != 0,
            touched: small(2) % 4 == 1,
            pd: PdId(small(2)),
            rights: Rights(small(64) as u32),
            base: small(64),
            len: small(64),
            bound_qp: (small(2) == 0).then_some(small(2) as u32),
            windows: small(2) as u32,
        };
        let access = Access {
            stag: Stag(small(1024) as u32),
            to: small(64),
            len: small(64),
            need: needs[(small(6) % 6) as usize],
            touch: small(2) == 0,
            by: Accessor {
                pd: PdId(small(2)),
                qp: small(2) as u32,
                consumer: [Consumer::User, Consumer::Kernel][(small(2) % 2) as usize],
                remote: Rights(small(64) as u32),
            },
        };
        if let Ok(offset) = check(Some(&region), &access) {
            assert!(access.len == 0 || offset + access.len <= region.len);
        }
        let _ = check_invalidate(Some(&region), access.stag, &access.by, true);
    }
}

#[test]
fn every_error_has_its_answers() {
    let mut all = vec![
        Error::Crc,
        Error::FpduLength,
        Error::DdpVersion { tagged: true },
        Error::DdpVersion { tagged: false },
        Error::InvalidQn,
        Error::NoBuffer,
        Error::MsnRange,
        Error::InvalidMo,
        Error::TooLong,
        Error::RdmapVersion,
        Error::Opcode,
        Error::Short,
        Error::NoReadSlot,
        Error::ResponseStag,
        Error::ResponseBounds,
        Error::ResponseId,
        Error::Unaligned,
        Error::WriteStag,
        Error::WriteBounds,
        Error::LocalOp,
        Error::LocalCatastrophic,
        Error::Flushed,
        Error::Buffer,
        Error::State,
    ];
    for error in [
        MpaError::Key,
        MpaError::BothInitiators,
        MpaError::Revision(0),
        MpaError::PrivateDataLength,
        MpaError::Downgrade,
        MpaError::EnhancedData,
        MpaError::InsufficientIrd,
        MpaError::NoMatchingRtr,
        MpaError::LocalCatastrophic,
    ] {
        all.push(error.into());
    }
    for op in [
        AccessOp::Send,
        AccessOp::Recv,
        AccessOp::Write,
        AccessOp::AtomicRequest,
        AccessOp::Bind,
    ] {
        all.push(AccessError::Bounds.during(op));
    }
    for error in all {
        if let Some(code) = error.terminate() {
            assert!(code.is_known(), "{error:?}");
        }
        assert_ne!(error.wc_status(), iwarp::verdict::WcStatus::Success);
        let _ = (error.fault(), error.qp_event());
    }
}
