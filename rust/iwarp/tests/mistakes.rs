// SPDX-License-Identifier: GPL-2.0

//! Every mistake a peer can make in the stream: what it is called, what Terminate it gets, and that
//! nothing of it is placed.

mod common;

use common::{
    crc32c,
    region,
    Receiver,
    BASE, //
};
use iwarp::{
    error::{
        AccessError,
        AccessOp,
        Error, //
    },
    mem::{
        access::Rights,
        atomic::AtomicOp,
        stag::Stag, //
    },
    rx::{
        Event,
        Expect,
        Need,
        ReadExpect,
        RxConfig, //
    },
    wire::{
        ddp::{
            Tagged,
            Untagged, //
        },
        mpa::RtrSet,
        rdmap::{
            AtomicRequest,
            AtomicResponse,
            Header,
            ReadRequest,
            With, //
        },
        terminate::{
            TermCode,
            Terminate, //
        }, //
    }, //
};

fn read_request(len: u32) -> ReadRequest {
    ReadRequest {
        sink_stag: region(0).stag,
        sink_to: BASE + 100,
        len,
        source_stag: Stag(0x9900),
        source_to: 77,
    }
}

/// One FPDU by hand.
fn fpdu(header: &Header, payload: &[u8], last: bool) -> Vec<u8> {
    let mut out = vec![0; 72];
    let len = header.emit(payload.len() as u16, last, &mut out).unwrap();
    out.truncate(len);
    out.extend_from_slice(payload);
    seal(out)
}

/// Pad and CRC for the front of an FPDU.
fn seal(mut out: Vec<u8>) -> Vec<u8> {
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend(crc32c(&out).to_le_bytes());
    out
}

fn sent(qn: u32, msn: u32, mo: u32, len: usize, last: bool) -> Vec<u8> {
    let ddp = Untagged { qn, msn, mo };
    let header = Header::Send {
        se: false,
        with: With::Nothing,
        ddp,
    };
    fpdu(&header, &vec![3; len], last)
}

fn tagged(response: bool, stag: Stag, to: u64, len: usize, last: bool) -> Vec<u8> {
    let at = Tagged { stag, to };
    let header = if response {
        Header::ReadResponse(at)
    } else {
        Header::Write(at)
    };
    fpdu(&header, &vec![4; len], last)
}

/// Feeds FPDUs; the error of the last one and the Terminate it asks for.
fn failure(rx: &mut Receiver, fpdus: &[Vec<u8>]) -> (Error, Terminate) {
    for (i, fpdu) in fpdus.iter().enumerate() {
        assert_eq!(rx.error, None, "before {i}");
        rx.feed(fpdu);
    }
    let error = rx.error.expect("no error");
    // Dead, and silent.
    let events = rx.events.len();
    rx.feed(&sent(0, 1, 0, 8, true));
    assert_eq!((rx.rx.need(), rx.events.len()), (Need::Stopped, events));
    assert_eq!(rx.rx.fill(&[0]), Err(Error::State));
    assert_eq!(rx.rx.finish(0), Err(Error::State));
    (error, rx.rx.terminate(error).expect("no Terminate"))
}

fn fails(fpdus: &[Vec<u8>], error: Error, code: (u8, u8, u8)) -> Terminate {
    let mut rx = Receiver::new(true, RtrSet::NONE);
    let (got, term) = failure(&mut rx, fpdus);
    assert_eq!(got, error);
    assert_eq!((term.code.layer, term.code.etype, term.code.ecode), code);
    term
}

/// A receiver whose consumer takes no Immediate Data.
const FEW: RxConfig = RxConfig {
    crc: true,
    rtr: RtrSet::NONE,
    immediate: false,
    send_imm: false,
};

fn patched(mut fpdu: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    fpdu[at] = value;
    fpdu
}

#[test]
fn untagged_mistakes() {
    let good = sent(0, 1, 0, 8, true);
    let qn = fails(&[sent(1, 1, 0, 8, true)], Error::InvalidQn, (1, 2, 1));
    assert_eq!(qn.ddp_len, Some(26));
    assert_eq!(qn.ddp.unwrap().untagged().unwrap().qn, 1);
    assert_eq!(qn.read, None);
    fails(&[sent(3, 1, 0, 8, true)], Error::InvalidQn, (1, 2, 1));
    fails(&[sent(0, 2, 0, 8, true)], Error::MsnRange, (1, 2, 3));
    fails(&[sent(0, 0, 0, 8, true)], Error::MsnRange, (1, 2, 3));
    fails(&[good.clone(), good.clone()], Error::MsnRange, (1, 2, 3));
    fails(
        &[good.clone(), sent(0, 3, 0, 8, true)],
        Error::MsnRange,
        (1, 2, 3),
    );
    fails(&[sent(0, 1, 4, 8, true)], Error::InvalidMo, (1, 2, 4));
    let half = sent(0, 1, 0, 8, false);
    fails(
        &[half.clone(), sent(0, 1, 0, 8, true)],
        Error::InvalidMo,
        (1, 2, 4),
    );
    fails(
        &[half.clone(), sent(0, 1, 12, 8, true)],
        Error::InvalidMo,
        (1, 2, 4),
    );
    fails(
        &[half.clone(), sent(0, 2, 8, 8, true)],
        Error::MsnRange,
        (1, 2, 3),
    );
    // Another kind of Send in the middle of one.
    let mut other = sent(0, 1, 8, 8, true);
    other[3] = 0x45;
    fails(&[half.clone(), other], Error::Opcode, (0, 2, 6));

    let mut rx = Receiver::new(true, RtrSet::NONE);
    rx.buffers = 1;
    rx.feed(&good);
    let (error, term) = failure(&mut rx, &[sent(0, 2, 0, 8, true)]);
    assert_eq!(
        (error, term.code),
        (Error::NoBuffer, TermCode::new(1, 2, 2))
    );
    assert!(term.ddp.is_some());
    let mut rx = Receiver::new(true, RtrSet::NONE);
    rx.buffer_len = 15;
    let (error, term) = failure(&mut rx, &[half, sent(0, 1, 8, 8, true)]);
    assert_eq!((error, term.code), (Error::TooLong, TermCode::new(1, 2, 5)));
}

#[test]
fn message_beyond_32_bits() {
    // Not reachable with real bytes, so begin near the end: an MO that does not fit is caught
    // before it could wrap.
    let near = sent(0, 1, u32::MAX, 8, true);
    fails(&[near], Error::InvalidMo, (1, 2, 4));
}

#[test]
fn layout_mistakes() {
    let good = sent(0, 1, 0, 8, true);
    let term = fails(
        &[patched(good.clone(), 2, 0x42)],
        Error::DdpVersion { tagged: false },
        (1, 2, 6),
    );
    assert_eq!(
        term.ddp.unwrap().as_bytes(),
        &patched(good.clone(), 2, 0x42)[2..20]
    );
    let write = tagged(false, region(0).stag, BASE, 8, true);
    let term = fails(
        &[patched(write.clone(), 2, 0xc0)],
        Error::DdpVersion { tagged: true },
        (1, 1, 4),
    );
    assert_eq!(
        term.ddp.unwrap().as_bytes(),
        &patched(write.clone(), 2, 0xc0)[2..16]
    );
    let term = fails(
        &[patched(good.clone(), 3, 0x03)],
        Error::RdmapVersion,
        (0, 2, 5),
    );
    assert_eq!(term.ddp.unwrap().untagged().unwrap().msn, 1);
    // Opcodes that do not exist, and those of messages that this receiver does not take.
    for rdmap in [0x48, 0x49, 0x4c, 0x4d, 0x4e, 0x4f, 0x5f] {
        for len in [0, 8] {
            let mut rx = Receiver::with(FEW);
            let bad = patched(sent(0, 1, 0, len, true), 3, rdmap);
            let (error, term) = failure(&mut rx, &[bad]);
            let code = TermCode::new(0, 2, 6);
            assert_eq!(
                (error, term.code),
                (Error::Opcode, code),
                "{rdmap:#x} {len}"
            );
            let msn = term.ddp.unwrap().untagged().unwrap().msn;
            assert_eq!((term.ddp_len, msn), (Some(18 + len as u16), 1));
            // No buffer is touched.
            assert_eq!(rx.buffers, 1000);
        }
    }
    for opcode in 0xc..0xf {
        fails(
            &[patched(good.clone(), 3, 0x40 | opcode)],
            Error::Opcode,
            (0, 2, 6),
        );
    }
    for opcode in 8..16 {
        let term = fails(
            &[patched(write.clone(), 3, 0x40 | opcode)],
            Error::Opcode,
            (0, 2, 6),
        );
        assert_eq!(term.ddp.unwrap().tagged().unwrap().to, BASE);
    }
    // Tagged Send, untagged Write.
    fails(&[patched(good.clone(), 2, 0xc1)], Error::Opcode, (0, 2, 6));
    fails(&[patched(write.clone(), 2, 0x41)], Error::Opcode, (0, 2, 6));
    // Shorter than a DDP header, down to nothing.
    for len in 0..14 {
        let fpdu = patched(patched(write.clone(), 0, 0), 1, len);
        let term = fails(&[fpdu], Error::FpduLength, (2, 0, 3));
        assert_eq!((term.ddp_len, term.ddp), (None, None));
    }
    for len in 0..18 {
        fails(
            &[patched(patched(good.clone(), 0, 0), 1, len)],
            Error::FpduLength,
            (2, 0, 3),
        );
    }
    // A Read Request and a Terminate shorter than their headers.
    let ddp = Untagged {
        qn: 1,
        msn: 1,
        mo: 0,
    };
    let read = fpdu(&Header::ReadRequest(ddp, read_request(5)), &[], true);
    for len in 18..46 {
        fails(&[patched(read.clone(), 1, len)], Error::Short, (0, 2, 0xff));
    }
    for len in 18..22 {
        fails(
            &[patched(patched(good.clone(), 3, 0x47), 1, len)],
            Error::Short,
            (0, 2, 0xff),
        );
    }
    // Likewise Immediate Data, which has 8 octets (RFC 7306 6.3), and what is about atomics.
    for (rdmap, whole) in [(0x48, 26), (0x49, 26), (0x4a, 70), (0x4b, 30)] {
        for len in 18..whole {
            fails(
                &[patched(patched(good.clone(), 3, rdmap), 1, len)],
                Error::Short,
                (0, 2, 0xff),
            );
        }
    }
    // CRC: of the last byte of each part.
    for at in [1, 19, 27, 31] {
        let mut bad = sent(0, 1, 0, 8, true);
        bad[at] ^= 0x10;
        let mut rx = Receiver::new(true, RtrSet::NONE);
        rx.feed(&bad);
        if at >= 19 {
            assert!(
                matches!(rx.error, Some(Error::Crc | Error::InvalidMo)),
                "{at}"
            );
        }
        assert!(rx.events.is_empty());
    }
    let mut bad = sent(0, 1, 0, 8, true);
    *bad.last_mut().unwrap() ^= 1;
    let term = fails(&[bad.clone()], Error::Crc, (2, 0, 2));
    assert_eq!(term, Terminate::bare(TermCode::new(2, 0, 2)));
    // Without CRCs the field is not looked at.
    let mut rx = Receiver::new(false, RtrSet::NONE);
    rx.feed(&bad);
    assert_eq!((rx.error, rx.events.len()), (None, 1));
}

#[test]
fn read_request_mistakes() {
    let ddp = |qn, msn, mo| Untagged { qn, msn, mo };
    let read =
        |d, payload: &[u8], last| fpdu(&Header::ReadRequest(d, read_request(5)), payload, last);
    fails(
        &[read(ddp(0, 1, 0), &[], true)],
        Error::InvalidQn,
        (1, 2, 1),
    );
    fails(&[read(ddp(1, 2, 0), &[], true)], Error::MsnRange, (1, 2, 3));
    fails(
        &[read(ddp(1, 1, 4), &[], true)],
        Error::InvalidMo,
        (1, 2, 4),
    );
    fails(
        &[read(ddp(1, 1, 0), &[0; 4], true)],
        Error::TooLong,
        (1, 2, 5),
    );
    fails(&[read(ddp(1, 1, 0), &[], false)], Error::TooLong, (1, 2, 5));
    let good = read(ddp(1, 1, 0), &[], true);
    fails(&[good.clone(), good.clone()], Error::MsnRange, (1, 2, 3));

    // A protection error found when the event is handled carries the request (RFC 5040 figure 10).
    let mut rx = Receiver::new(true, RtrSet::NONE);
    rx.feed(&good);
    let term = rx
        .rx
        .terminate(AccessError::Bounds.during(AccessOp::ReadRequest))
        .unwrap();
    assert_eq!(term.code, TermCode::new(0, 1, 1));
    assert_eq!(term.ddp_len, Some(46));
    assert_eq!(term.ddp.unwrap().untagged(), Some(ddp(1, 1, 0)));
    assert_eq!(term.read, Some(read_request(5)));
    let term = rx.rx.terminate(Error::NoReadSlot).unwrap();
    assert_eq!((term.code, term.read), (TermCode::new(1, 2, 2), None));
    assert_eq!(term.ddp.unwrap().untagged(), Some(ddp(1, 1, 0)));
    // One for a bad Send with Invalidate carries no RDMA header.
    let mut rx = Receiver::new(true, RtrSet::NONE);
    rx.feed(&sent(0, 1, 0, 8, true));
    let term = rx
        .rx
        .terminate(AccessError::WrongPd.during(AccessOp::Invalidate))
        .unwrap();
    assert_eq!(term.code, TermCode::new(0, 1, 9));
    assert!(term.ddp.is_some() && term.read.is_none());
    // And a local one carries nothing.
    let term = rx.rx.terminate(Error::LocalCatastrophic).unwrap();
    assert_eq!(term, Terminate::bare(TermCode::new(0, 0, 0)));
    assert_eq!(rx.rx.terminate(Error::Flushed), None);
}

fn immediate(qn: u32, msn: u32, mo: u32, payload: &[u8], last: bool) -> Vec<u8> {
    let header = Header::Immediate {
        se: true,
        data: [1, 2, 3, 4],
        ddp: Untagged { qn, msn, mo },
    };
    fpdu(&header, payload, last)
}

#[test]
fn immediate_data_mistakes() {
    let good = immediate(0, 1, 0, &[], true);
    for qn in [1, 2, 3, 4, u32::MAX] {
        let term = fails(
            &[immediate(qn, 1, 0, &[], true)],
            Error::InvalidQn,
            (1, 2, 1),
        );
        // The DDP header, and no RDMA header (RFC 7306 8.1).
        assert_eq!(term.ddp_len, Some(26));
        let ddp = Untagged { qn, msn: 1, mo: 0 };
        assert_eq!(term.ddp.unwrap().untagged(), Some(ddp));
        assert_eq!(term.read, None);
    }
    for msn in [0, 2] {
        fails(
            &[immediate(0, msn, 0, &[], true)],
            Error::MsnRange,
            (1, 2, 3),
        );
    }
    // It is counted with the Sends.
    let send = sent(0, 1, 0, 8, true);
    fails(&[send.clone(), good.clone()], Error::MsnRange, (1, 2, 3));
    fails(&[good.clone(), send], Error::MsnRange, (1, 2, 3));
    fails(&[good.clone(), good.clone()], Error::MsnRange, (1, 2, 3));
    for mo in [1, 8] {
        fails(
            &[immediate(0, 1, mo, &[], true)],
            Error::InvalidMo,
            (1, 2, 4),
        );
    }
    // Neither more than 8 octets nor a message of more than one segment.
    for more in [1, 4, 8] {
        let term = fails(
            &[immediate(0, 1, 0, &[0; 8][..more], true)],
            Error::TooLong,
            (1, 2, 5),
        );
        assert_eq!(term.ddp_len, Some(26 + more as u16));
    }
    fails(&[immediate(0, 1, 0, &[], false)], Error::TooLong, (1, 2, 5));
    // In the middle of a Send, wherever it says it belongs.
    let half = sent(0, 1, 0, 8, false);
    fails(
        &[half.clone(), immediate(0, 1, 8, &[], true)],
        Error::Opcode,
        (0, 2, 6),
    );
    fails(&[half.clone(), good.clone()], Error::InvalidMo, (1, 2, 4));
    fails(
        &[half, immediate(0, 2, 0, &[], true)],
        Error::MsnRange,
        (1, 2, 3),
    );
    // It takes a receive buffer.
    let mut rx = Receiver::new(true, RtrSet::NONE);
    rx.buffers = 1;
    rx.feed(&good);
    let (error, term) = failure(&mut rx, &[immediate(0, 2, 0, &[], true)]);
    assert_eq!(
        (error, term.code),
        (Error::NoBuffer, TermCode::new(1, 2, 2))
    );
    assert_eq!((term.ddp_len, term.read), (Some(26), None));
    assert_eq!(term.ddp.unwrap().untagged().unwrap().msn, 2);
    assert_eq!(rx.events.len(), 1);
    // The CRC covers the data.
    for at in 20..28 {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fails(&[bad], Error::Crc, (2, 0, 2));
    }
}

/// A Send with Immediate Data breaks the rules of Sends.
#[test]
fn send_with_immediate_data_mistakes() {
    let send = |se, qn, msn, mo, len: usize, last| {
        let header = Header::Send {
            se,
            with: With::Immediate([9; 4]),
            ddp: Untagged { qn, msn, mo },
        };
        fpdu(&header, &vec![5; len], last)
    };
    for qn in [1, 2, 3] {
        fails(
            &[send(false, qn, 1, 0, 8, true)],
            Error::InvalidQn,
            (1, 2, 1),
        );
    }
    fails(&[send(true, 0, 2, 0, 8, true)], Error::MsnRange, (1, 2, 3));
    fails(&[send(true, 0, 1, 8, 8, true)], Error::InvalidMo, (1, 2, 4));
    // The reserved bit is a part of its opcode, which stays in all of its segments.
    for (first, second) in [(false, true), (true, false)] {
        fails(
            &[
                send(first, 0, 1, 0, 8, false),
                send(second, 0, 1, 8, 8, true),
            ],
            Error::Opcode,
            (0, 2, 6),
        );
    }
    for se in [false, true] {
        let mut rx = Receiver::new(true, RtrSet::NONE);
        rx.feed(&send(se, 0, 1, 0, 8, false));
        // That of the first segment counts.
        let mut other = send(se, 0, 1, 8, 8, true);
        other.truncate(28);
        other[4..8].fill(7);
        rx.feed(&seal(other));
        let with = With::Immediate([9; 4]);
        let (len, msn) = (16, 1);
        assert_eq!(rx.events, [Event::Send { len, se, with, msn }]);
    }
    // A tagged one does not exist.
    let write = tagged(false, region(0).stag, BASE, 8, true);
    for rdmap in [0x4f, 0x5f] {
        fails(
            &[patched(write.clone(), 3, rdmap)],
            Error::Opcode,
            (0, 2, 6),
        );
    }
}

const ADD: AtomicOp = AtomicOp::FetchAdd { add: 1, mask: 0 };

fn atomic(ddp: (u32, u32, u32), stag: Stag, to: u64) -> Header {
    let (qn, msn, mo) = ddp;
    let op = ADD;
    let request = AtomicRequest {
        id: 77,
        stag,
        to,
        op,
    };
    Header::AtomicRequest(Untagged { qn, msn, mo }, request)
}

#[test]
fn atomic_request_mistakes() {
    let stag = region(0).stag;
    let request = |qn, msn, mo| fpdu(&atomic((qn, msn, mo), stag, BASE), &[], true);
    for qn in [0, 2, 3, 4] {
        let term = fails(&[request(qn, 1, 0)], Error::InvalidQn, (1, 2, 1));
        assert_eq!((term.ddp_len, term.read), (Some(70), None));
        let ddp = Untagged { qn, msn: 1, mo: 0 };
        assert_eq!(term.ddp.unwrap().untagged(), Some(ddp));
    }
    for msn in [0, 2] {
        fails(&[request(1, msn, 0)], Error::MsnRange, (1, 2, 3));
    }
    fails(&[request(1, 1, 4)], Error::InvalidMo, (1, 2, 4));
    // It is counted with the Read Requests.
    let ddp = Untagged {
        qn: 1,
        msn: 1,
        mo: 0,
    };
    let read = fpdu(&Header::ReadRequest(ddp, read_request(5)), &[], true);
    let good = request(1, 1, 0);
    for (first, second) in [(&read, &good), (&good, &read), (&good, &good)] {
        fails(&[first.clone(), second.clone()], Error::MsnRange, (1, 2, 3));
    }
    let header = atomic((1, 1, 0), stag, BASE);
    for more in [1, 8] {
        fails(
            &[fpdu(&header, &[0; 8][..more], true)],
            Error::TooLong,
            (1, 2, 5),
        );
    }
    fails(&[fpdu(&header, &[], false)], Error::TooLong, (1, 2, 5));

    // An operation that does not exist is found behind the CRC, and changes nothing.
    for code in (0..16).filter(|code| ![0, 2].contains(code)) {
        let mut odd = good.clone();
        odd.truncate(72);
        odd[23] = code;
        let mut rx = Receiver::new(true, RtrSet::NONE);
        let (error, term) = failure(&mut rx, &[seal(odd)]);
        assert_eq!((error, term.code), (Error::Opcode, TermCode::new(0, 2, 6)));
        assert_eq!((term.ddp_len, term.read), (Some(70), None));
        assert_eq!(term.ddp.unwrap().untagged(), Some(ddp));
        assert!(rx.events.is_empty() && rx.answers.is_empty());
    }
    let mut odd = good.clone();
    odd[23] = 1;
    fails(&[odd], Error::Crc, (2, 0, 2));

    // What is wrong with the target is found when the event is handled. The Terminate has the DDP
    // header, and no RDMA header (RFC 7306 8.1).
    let denied = |error: AccessError| error.during(AccessOp::AtomicRequest);
    let end = BASE + 0x1_0000;
    for (stag, to, error, code) in [
        (
            Stag(0x55_0000),
            BASE,
            denied(AccessError::UnknownStag),
            (0, 1, 0),
        ),
        (
            stag.with_key(1),
            BASE,
            denied(AccessError::WrongKey),
            (0, 1, 0),
        ),
        (stag, BASE - 8, denied(AccessError::Bounds), (0, 1, 1)),
        (stag, end - 7, denied(AccessError::Bounds), (0, 1, 1)),
        (stag, end, denied(AccessError::Bounds), (0, 1, 1)),
        (stag, u64::MAX - 7, denied(AccessError::Wrap), (0, 1, 4)),
        (stag, BASE + 1, Error::Unaligned, (0, 2, 7)),
        (stag, BASE + 4, Error::Unaligned, (0, 2, 7)),
    ] {
        let mut rx = Receiver::new(true, RtrSet::NONE);
        let fpdu = fpdu(&atomic((1, 1, 0), stag, to), &[], true);
        let (got, term) = failure(&mut rx, &[fpdu]);
        assert_eq!(got, error);
        assert_eq!((term.code.layer, term.code.etype, term.code.ecode), code);
        assert_eq!((term.ddp_len, term.read), (Some(70), None));
        assert_eq!(term.ddp.unwrap().untagged(), Some(ddp));
        assert!(rx.memory.iter().all(|b| *b == 0) && rx.answers.is_empty());
        // It says the same when it is found later.
        assert_eq!(term, Terminate::for_atomic(term.code, 1));
    }
    let mut rx = Receiver::new(true, RtrSet::NONE);
    rx.region.rights = Rights::LOCAL_WRITE.union(Rights::REMOTE_WRITE);
    let (error, term) = failure(&mut rx, &[good.clone()]);
    assert_eq!(
        (error, term.code),
        (denied(AccessError::Rights), TermCode::new(0, 1, 2))
    );
    assert!(rx.memory.iter().all(|b| *b == 0));
    // More than the agreed IRD.
    let mut rx = Receiver::new(true, RtrSet::NONE);
    rx.feed(&good);
    let term = rx.rx.terminate(Error::NoReadSlot).unwrap();
    assert_eq!((term.code, term.read), (TermCode::new(1, 2, 2), None));
    assert_eq!(term.ddp.unwrap().untagged(), Some(ddp));
}

fn atomic_response(qn: u32, msn: u32, mo: u32, id: u32) -> Vec<u8> {
    let response = AtomicResponse { id, original: 5 };
    let ddp = Untagged { qn, msn, mo };
    fpdu(&Header::AtomicResponse(ddp, response), &[], true)
}

#[test]
fn atomic_response_mistakes() {
    let expecting = |orq: &[Expect]| {
        let mut rx = Receiver::new(true, RtrSet::NONE);
        rx.orq = orq.to_vec();
        rx
    };
    let read = Expect::Read(ReadExpect {
        stag: region(0).stag,
        to: BASE,
        len: 8,
    });
    let (seven, eight) = (Expect::Atomic(7), Expect::Atomic(8));
    let is = |orq: &[Expect], fpdus: &[Vec<u8>], error, code: (u8, u8, u8)| {
        let mut rx = expecting(orq);
        let (got, term) = failure(&mut rx, fpdus);
        assert_eq!(got, error);
        assert_eq!((term.code.layer, term.code.etype, term.code.ecode), code);
        // What it was not the answer to is still outstanding.
        assert_eq!(rx.orq, orq[rx.events.len()..]);
        assert_eq!(term.read, None);
        term
    };
    let good = atomic_response(3, 1, 0, 7);
    for qn in [0, 1, 2, 4] {
        let term = is(
            &[seven],
            &[atomic_response(qn, 1, 0, 7)],
            Error::InvalidQn,
            (1, 2, 1),
        );
        assert_eq!(term.ddp_len, Some(30));
        let ddp = Untagged { qn, msn: 1, mo: 0 };
        assert_eq!(term.ddp.unwrap().untagged(), Some(ddp));
    }
    for msn in [0, 2] {
        is(
            &[seven],
            &[atomic_response(3, msn, 0, 7)],
            Error::MsnRange,
            (1, 2, 3),
        );
    }
    is(
        &[seven, seven],
        &[good.clone(), good.clone()],
        Error::MsnRange,
        (1, 2, 3),
    );
    is(
        &[seven],
        &[atomic_response(3, 1, 4, 7)],
        Error::InvalidMo,
        (1, 2, 4),
    );
    let ddp = Untagged {
        qn: 3,
        msn: 1,
        mo: 0,
    };
    let header = Header::AtomicResponse(ddp, AtomicResponse { id: 7, original: 5 });
    for fpdu in [
        fpdu(&header, &[0], true),
        fpdu(&header, &[0; 8], true),
        fpdu(&header, &[], false),
    ] {
        is(&[seven], &[fpdu], Error::TooLong, (1, 2, 5));
    }
    // Nobody has asked.
    is(&[], &[good.clone()], Error::Opcode, (0, 2, 6));
    let term = is(
        &[seven],
        &[good.clone(), atomic_response(3, 2, 0, 7)],
        Error::Opcode,
        (0, 2, 6),
    );
    assert_eq!(term.ddp.unwrap().untagged().unwrap().msn, 2);
    // The oldest request was another one.
    for orq in [&[eight][..], &[eight, seven]] {
        let term = is(orq, &[good.clone()], Error::ResponseId, (0, 2, 0xff));
        assert_eq!(term.ddp.unwrap().untagged(), Some(ddp));
    }
    for id in [7 + (1 << 8), 7 + (1 << 31), !7] {
        is(
            &[seven],
            &[atomic_response(3, 1, 0, id)],
            Error::ResponseId,
            (0, 2, 0xff),
        );
    }
    // The oldest request was a Read, which is answered first, and as a whole.
    is(&[read, seven], &[good.clone()], Error::Opcode, (0, 2, 6));
    let half = tagged(true, region(0).stag, BASE, 4, false);
    is(
        &[read, seven],
        &[half.clone(), good.clone()],
        Error::Opcode,
        (0, 2, 6),
    );
    // And the other way round.
    let whole = tagged(true, region(0).stag, BASE, 8, true);
    is(
        &[seven, read],
        std::slice::from_ref(&whole),
        Error::Opcode,
        (0, 2, 6),
    );
    let mut rx = expecting(&[seven, read, eight]);
    for fpdu in [&good, &whole, &atomic_response(3, 2, 0, 8)] {
        rx.feed(fpdu);
    }
    let done = Event::AtomicResponse { original: 5 };
    assert_eq!(rx.events, [done, Event::ReadResponse { len: 8 }, done]);
    assert_eq!((rx.error, rx.orq.len()), (None, 0));
    // The value is covered by the CRC.
    for at in 20..32 {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let mut rx = expecting(&[seven]);
        let (error, _) = failure(&mut rx, &[bad]);
        assert_eq!(error == Error::ResponseId, at < 24);
        assert_eq!((rx.events.len(), rx.orq.len()), (0, 1));
    }
}

#[test]
fn write_mistakes() {
    let stag = region(0).stag;
    let denied = |error: AccessError| error.during(AccessOp::Write);
    let end = BASE + 0x1_0000;
    let len = 8;
    for (fpdu, error, code) in [
        (
            tagged(false, Stag(0x55_0000), BASE, len, true),
            AccessError::UnknownStag,
            (1, 1, 0),
        ),
        (
            tagged(false, stag.with_key(1), BASE, len, true),
            AccessError::WrongKey,
            (1, 1, 0),
        ),
        (
            tagged(false, stag, BASE - 1, len, true),
            AccessError::Bounds,
            (1, 1, 1),
        ),
        (
            tagged(false, stag, end - 7, len, true),
            AccessError::Bounds,
            (1, 1, 1),
        ),
        (
            tagged(false, stag, u64::MAX - 6, len, true),
            AccessError::Wrap,
            (1, 1, 3),
        ),
    ] {
        let term = fails(&[fpdu], denied(error), code);
        assert_eq!(term.ddp_len, Some(22));
        assert!(term.ddp.unwrap().tagged().is_some());
        assert_eq!(term.read, None);
    }
    let mut rx = Receiver::new(true, RtrSet::NONE);
    rx.region.rights = Rights::LOCAL_WRITE;
    let (error, term) = failure(&mut rx, &[tagged(false, stag, BASE, 8, true)]);
    assert_eq!(
        (error, term.code),
        (denied(AccessError::Rights), TermCode::new(0, 1, 2))
    );
    assert!(rx.memory.iter().all(|b| *b == 0));
    // All segments of a Write go to one buffer, though not in any order.
    let first = tagged(false, stag, BASE, 8, false);
    let other = tagged(false, stag.with_key(1), BASE + 8, 8, true);
    fails(&[first.clone(), other], Error::WriteStag, (1, 1, 0));
    let mut rx = Receiver::new(true, RtrSet::NONE);
    for (to, last) in [(BASE + 24, false), (BASE, false), (BASE + 9, true)] {
        rx.feed(&tagged(false, stag, to, 8, last));
    }
    assert_eq!(rx.events, [Event::Write { len: 24 }]);
    let placed = |at: usize| rx.memory[at..at + 8].iter().all(|b| *b == 4);
    assert!(placed(24) && placed(0) && placed(9));
    let response = tagged(true, stag, BASE + 8, 8, true);
    fails(&[first, response], Error::Opcode, (0, 2, 6));
    // Without payload nothing of this counts.
    let mut rx = Receiver::new(true, RtrSet::NONE);
    rx.feed(&tagged(false, Stag(0), u64::MAX, 0, true));
    assert_eq!(rx.events, [Event::Write { len: 0 }]);
}

#[test]
fn read_response_mistakes() {
    let stag = region(0).stag;
    let expecting = |len| {
        let mut rx = Receiver::new(true, RtrSet::NONE);
        rx.orq.push(Expect::Read(ReadExpect {
            stag,
            to: BASE,
            len,
        }));
        rx
    };
    let is = |mut rx: Receiver, fpdus: &[Vec<u8>], error, code: (u8, u8, u8)| {
        let (got, term) = failure(&mut rx, fpdus);
        assert_eq!(got, error);
        assert_eq!((term.code.layer, term.code.etype, term.code.ecode), code);
        rx
    };
    fails(
        &[tagged(true, stag, BASE, 8, true)],
        Error::Opcode,
        (0, 2, 6),
    );
    let other = stag.with_key(1);
    is(
        expecting(8),
        &[tagged(true, other, BASE, 8, true)],
        Error::ResponseStag,
        (1, 1, 0),
    );
    for (to, len, last) in [
        (BASE + 1, 8, true), // Other offset.
        (BASE, 7, true),     // Too short.
        (BASE, 9, true),     // Too long.
        (BASE, 9, false),    // Too long, and goes on.
    ] {
        let rx = is(
            expecting(8),
            &[tagged(true, stag, to, len, last)],
            Error::ResponseBounds,
            (1, 1, 1),
        );
        assert!(rx.memory.iter().all(|b| *b == 0));
        assert_eq!(rx.orq.len(), 1);
    }
    let half = tagged(true, stag, BASE, 4, false);
    for (stag, to, len, error, code) in [
        (other, BASE + 4, 4, Error::ResponseStag, (1, 1, 0)),
        (stag, BASE + 5, 4, Error::ResponseBounds, (1, 1, 1)),
        (stag, BASE + 4, 5, Error::ResponseBounds, (1, 1, 1)),
        (stag, BASE + 4, 3, Error::ResponseBounds, (1, 1, 1)),
    ] {
        is(
            expecting(8),
            &[half.clone(), tagged(true, stag, to, len, true)],
            error,
            code,
        );
    }
    // The sink was deregistered between two segments: nothing of the second is placed.
    let mut rx = expecting(8);
    rx.feed(&half);
    rx.region.valid = false;
    let gone = AccessError::NotValid.during(AccessOp::ReadResponse);
    let rx = is(
        rx,
        &[tagged(true, stag, BASE + 4, 4, true)],
        gone,
        (1, 1, 0),
    );
    assert_eq!(rx.memory[..8], [4, 4, 4, 4, 0, 0, 0, 0]);
    // An empty response answers an empty Read whatever its tag says.
    let mut rx = expecting(0);
    rx.feed(&tagged(true, Stag(1), 5, 0, true));
    assert_eq!(rx.events, [Event::ReadResponse { len: 0 }]);
}

#[test]
fn unmatched_response_goes_nowhere() {
    // A driver that forgets `match_response` cannot place a byte.
    let mut rx = Receiver::new(true, RtrSet::NONE).rx;
    let fpdu = tagged(true, Stag(0x100), BASE, 8, true);
    assert!(rx.fill(&fpdu[..16]).unwrap().is_some());
    assert_eq!(rx.advance(8), Err(Error::State));
    let mut rx = Receiver::new(true, RtrSet::NONE).rx;
    let fpdu = tagged(true, Stag(0x100), BASE, 0, true);
    assert!(rx.fill(&fpdu[..16]).unwrap().is_some());
    assert_eq!(rx.trailer(&[0; 4]), Err(Error::State));
    // Nor can it complete an atomic operation.
    let fpdu = atomic_response(3, 1, 0, 7);
    let start = || {
        let mut rx = Receiver::new(true, RtrSet::NONE).rx;
        assert_eq!(rx.fill_from(&fpdu), Ok((32, true)));
        rx
    };
    assert_eq!(start().trailer(&[0; 4]), Err(Error::State));
    assert_eq!(start().match_response(None), Err(Error::Opcode));
    let mut rx = start();
    assert_eq!(rx.match_response(Some(Expect::Atomic(7))), Ok(()));
    assert_eq!(
        rx.match_response(Some(Expect::Atomic(7))),
        Err(Error::State)
    );
}

#[test]
fn too_much_at_once() {
    let mut rx = Receiver::new(true, RtrSet::NONE).rx;
    assert_eq!(rx.need(), Need::Header(16));
    assert_eq!(rx.fill(&[0; 17]), Err(Error::State));
    let mut rx = Receiver::new(true, RtrSet::NONE).rx;
    let fpdu = tagged(false, Stag(0x100), BASE, 8, true);
    rx.fill(&fpdu[..16]).unwrap();
    assert_eq!(rx.advance(9), Err(Error::State));
}

#[test]
fn long_terminate() {
    // More than any Terminate has: taken in, the rest is skipped.
    let mut bytes = fpdu(
        &Header::Terminate(
            Untagged {
                qn: 2,
                msn: 1,
                mo: 0,
            },
            Terminate::for_read(TermCode::new(0, 1, 0), 1, &read_request(9), 0),
        ),
        &[],
        true,
    );
    bytes.truncate(72);
    bytes.extend([0; 40]);
    bytes[1] = 110;
    let mut rx = Receiver::new(true, RtrSet::NONE);
    rx.feed(&seal(bytes));
    assert_eq!(rx.error, None);
    assert!(matches!(rx.events[..], [Event::Terminate(t)] if t.read == Some(read_request(9))));
    assert_eq!(rx.rx.need(), Need::Stopped);
    fails(
        &[fpdu(
            &Header::Terminate(
                Untagged {
                    qn: 2,
                    msn: 2,
                    mo: 0,
                },
                Terminate::bare(TermCode::CATASTROPHIC),
            ),
            &[],
            true,
        )],
        Error::MsnRange,
        (1, 2, 3),
    );
}
