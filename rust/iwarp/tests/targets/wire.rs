// SPDX-License-Identifier: GPL-2.0

//! Headers and start-up frames: what is read is what the RFC's figures say, and what is written
//! reads the same; the sizes of FPDUs are those that come out when they are counted.

use super::Input;
use iwarp::{
    error::{
        Error,
        MpaError, //
    },
    mem::{
        atomic::AtomicOp,
        stag::Stag, //
    },
    tx::{
        max_payload,
        message_cost, //
    },
    wire::{
        ddp::{
            Tagged,
            Untagged, //
        },
        mpa::{
            emit_frame,
            fpdu_len,
            mulpdu,
            pad,
            Enhanced,
            Frame,
            FrameKind,
            RtrKind,
            RtrSet,
            MAX_ULPDU,
            MIN_MULPDU, //
        },
        rdmap::{
            AtomicRequest,
            AtomicResponse,
            Header,
            Preamble,
            ReadRequest,
            With, //
        }, //
    }, //
};

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(3) {
        0 => header(input.rest()),
        1 => frame(&input.frame()),
        _ => sizes(&mut input),
    }
}

fn be(bytes: &[u8], at: usize, n: usize) -> u64 {
    bytes[at..at + n]
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// RFC 5041 figures 2 and 4, RFC 5040 figures 3 to 8, RFC 7306 figures 2 to 7, octet by octet.
fn header(bytes: &[u8]) {
    let parsed = Header::parse(bytes);
    if bytes.len() < 4 {
        assert_eq!(parsed, Err(Error::Short));
        assert_eq!(Preamble::parse(bytes), Err(Error::Short));
        return;
    }
    let preamble = Preamble::parse(bytes).unwrap();
    let control = preamble.control;
    assert_eq!(u64::from(preamble.ulpdu), be(bytes, 0, 2));
    assert_eq!(control.tagged, bytes[2] >= 0x80);
    assert_eq!(control.last, bytes[2] % 0x80 >= 0x40);
    assert_eq!(control.version, bytes[2] % 4);
    assert_eq!(control.rdmap_version, bytes[3] / 0x40);
    // The reserved bit in front of the opcode for experiments makes it two.
    let keeps = if bytes[3] % 0x10 == 15 { 0xdf } else { 0xcf };
    assert_eq!(control.opcode, bytes[3] & keeps & 0x3f);
    assert_eq!(control.to_bytes(), [bytes[2] & 0xc3, bytes[3] & keeps]);

    let (needs, tagged) = match control.opcode {
        0 | 2 => (16, true),
        1 => (48, false),
        3..=6 | 15 | 31 => (20, false),
        7 => (24, false),
        8 | 9 => (28, false),
        10 => (72, false),
        11 => (32, false),
        _ => {
            assert_eq!(parsed, Err(Error::Opcode));
            return;
        }
    };
    if tagged != control.tagged {
        assert_eq!(parsed, Err(Error::Opcode));
        return;
    }
    if bytes.len() < needs {
        assert_eq!(parsed, Err(Error::Short));
        return;
    }
    if control.opcode == 10 && ![0, 2].contains(&(bytes[23] % 16)) {
        assert_eq!(parsed, Err(Error::Opcode));
        return;
    }
    let (again, header) = parsed.unwrap();
    assert_eq!(again, preamble);
    let stag = |at| Stag(be(bytes, at, 4) as u32);
    let word = |at| be(bytes, at, 4) as u32;
    let untagged = || Untagged {
        qn: word(8),
        msn: word(12),
        mo: word(16),
    };
    match header {
        Header::Write(to) | Header::ReadResponse(to) => {
            let expect = Tagged {
                stag: stag(4),
                to: be(bytes, 8, 8),
            };
            assert_eq!(to, expect);
        }
        Header::Send { se, with, ddp } => {
            assert_eq!(se, matches!(control.opcode, 5 | 6 | 31));
            let expect = match control.opcode {
                3 | 5 => With::Nothing,
                4 | 6 => With::Invalidate(stag(4)),
                _ => With::Immediate([bytes[4], bytes[5], bytes[6], bytes[7]]),
            };
            assert_eq!(with, expect);
            assert_eq!(ddp, untagged());
        }
        Header::Immediate { se, data, ddp } => {
            assert_eq!(se, control.opcode == 9);
            assert_eq!(data, bytes[20..24]);
            assert_eq!(ddp, untagged());
        }
        Header::AtomicRequest(ddp, request) => {
            assert_eq!(ddp, untagged());
            let value = |at| be(bytes, at, 8);
            let op = if bytes[23] % 16 == 0 {
                AtomicOp::FetchAdd {
                    add: value(40),
                    mask: value(48),
                }
            } else {
                AtomicOp::CmpSwap {
                    swap: value(40),
                    swap_mask: value(48),
                    compare: value(56),
                    compare_mask: value(64),
                }
            };
            let expect = AtomicRequest {
                id: word(24),
                stag: stag(28),
                to: value(32),
                op,
            };
            assert_eq!(request, expect);
        }
        Header::AtomicResponse(ddp, response) => {
            assert_eq!(ddp, untagged());
            let expect = AtomicResponse {
                id: word(20),
                original: be(bytes, 24, 8),
            };
            assert_eq!(response, expect);
        }
        Header::ReadRequest(ddp, request) => {
            assert_eq!(ddp, untagged());
            let expect = ReadRequest {
                sink_stag: stag(20),
                sink_to: be(bytes, 24, 8),
                len: word(32),
                source_stag: stag(36),
                source_to: be(bytes, 40, 8),
            };
            assert_eq!(request, expect);
        }
        Header::Terminate(ddp, _) => assert_eq!(ddp, untagged()),
    }
    let mut out = [0; 72];
    if matches!(header, Header::Terminate(..)) {
        // Its body is for the target "terminate".
        let n = header.emit(0, true, &mut out).unwrap();
        assert_eq!(n, usize::from(header.len()));
        return;
    }
    assert_eq!(usize::from(header.len()), needs);
    // Written again it is the same, reserved bits and unused fields zero.
    let payload = preamble.ulpdu.checked_sub(needs as u16 - 2);
    let n = header.emit(payload.unwrap_or(0), control.last, &mut out);
    assert_eq!(n, Ok(needs));
    let mut expect = bytes[..needs].to_vec();
    if payload.is_none() {
        expect[..2].copy_from_slice(&(needs as u16 - 2).to_be_bytes());
    }
    expect[2] = expect[2] & 0xc0 | 1;
    expect[3] = expect[3] & keeps & 0x3f | 0x40;
    if matches!(control.opcode, 1 | 3 | 5 | 8..=11) {
        expect[4..8].fill(0);
    }
    match header {
        Header::Immediate { .. } => expect[24..].fill(0),
        Header::AtomicRequest(_, request) => {
            expect[20..23].fill(0);
            expect[23] &= 15;
            if matches!(request.op, AtomicOp::FetchAdd { .. }) {
                expect[56..64].fill(0);
                expect[64..].fill(0xff);
            }
        }
        _ => {}
    }
    assert_eq!(out[..needs], expect);
    assert_eq!(
        header.emit(0, true, &mut out[..needs - 1]),
        Err(Error::Buffer)
    );
}

/// RFC 5044 figure 5, RFC 6581 figure 2.
fn frame(bytes: &[u8]) {
    let enhanced = Enhanced::parse(bytes);
    match bytes {
        [a, b, c, d, ..] => {
            let data = enhanced.unwrap();
            assert_eq!(data.p2p, a & 0x80 != 0);
            for (kind, bit) in [
                (RtrKind::Send, a & 0x40),
                (RtrKind::Write, c & 0x80),
                (RtrKind::Read, c & 0x40),
            ] {
                assert_eq!(data.rtr.contains(kind), data.p2p && bit != 0);
            }
            assert_eq!(u64::from(data.ird), be(&[a & 0x3f, *b], 0, 2));
            assert_eq!(u64::from(data.ord), be(&[c & 0x3f, *d], 0, 2));
            let bytes = data.to_bytes();
            assert_eq!(Enhanced::parse(&bytes), Ok(data));
            if data.p2p {
                assert_eq!(bytes, [*a, *b, *c, *d]);
            } else {
                assert_eq!(bytes, [a & 0x3f, *b, c & 0x3f, *d]);
            }
        }
        _ => assert_eq!(enhanced, Err(MpaError::EnhancedData)),
    }

    let parsed = Frame::parse(bytes);
    let kind = match bytes.get(..16) {
        Some(b"MPA ID Req Frame") => FrameKind::Request,
        Some(b"MPA ID Rep Frame") => FrameKind::Reply,
        _ => {
            assert_eq!(parsed, Err(MpaError::Key));
            return;
        }
    };
    if bytes.len() < 20 {
        assert_eq!(parsed, Err(MpaError::Key));
        return;
    }
    if be(bytes, 18, 2) > 512 {
        assert_eq!(parsed, Err(MpaError::PrivateDataLength));
        return;
    }
    let frame = parsed.unwrap();
    let flags = bytes[16];
    assert_eq!(frame.kind, kind);
    assert_eq!(
        [frame.markers, frame.crc, frame.reject, frame.enhanced],
        [0x80, 0x40, 0x20, 0x10].map(|bit| flags & bit != 0)
    );
    // One bit asks, another one alone says yes.
    let [large, send_imm] = [(0x08, 0x04), (0x02, 0x01)].map(|(asks, agrees)| match kind {
        FrameKind::Request => flags & asks,
        FrameKind::Reply if flags & asks != 0 => 0,
        FrameKind::Reply => flags & agrees,
    });
    assert_eq!((frame.large, frame.send_imm), (large != 0, send_imm != 0));
    assert_eq!(frame.revision, bytes[17]);
    assert_eq!(u64::from(frame.pd_len), be(bytes, 18, 2));
    let mut out = [0; 600];
    assert_eq!(frame.emit(&mut out), Ok(20));
    assert_eq!(out[..16], bytes[..16]);
    let resume = match kind {
        FrameKind::Request => flags & 1,
        FrameKind::Reply => 0,
    };
    assert_eq!(frame.resume, resume != 0);
    assert_eq!(out[16], flags & 0xf0 | large | send_imm | resume);
    assert_eq!(out[17..20], bytes[17..20]);
    assert_eq!(frame.emit(&mut out[..19]), Err(Error::Buffer));

    // With private data: it is counted, and does not fit if it is too long.
    let private = &bytes[20..];
    let data = frame.enhanced.then_some(Enhanced {
        p2p: true,
        rtr: RtrSet::READ,
        ird: 3,
        ord: 4,
    });
    let extra = if data.is_some() { 4 } else { 0 };
    let written = emit_frame(&frame, data, [private, &[]], &mut out);
    if private.len() + extra > 512 {
        assert_eq!(written, Err(Error::Buffer));
        return;
    }
    let n = 20 + extra + private.len();
    assert_eq!(written, Ok(n));
    assert_eq!(be(&out, 18, 2) as usize, n - 20);
    assert_eq!(&out[20 + extra..n], private);
    let short = emit_frame(&frame, data, [private, &[]], &mut out[..n - 1]);
    assert_eq!(short, Err(Error::Buffer));
}

fn sizes(input: &mut Input<'_>) {
    let ulpdu = input.u16();
    let total = u32::from(ulpdu) + 2 + u32::from(pad(ulpdu));
    assert!(total % 4 == 0 && pad(ulpdu) < 4);
    assert_eq!(fpdu_len(ulpdu), total + 4);

    // The largest that fits, if any does.
    let emss = match input.below(4) {
        0 => input.u32(),
        _ => u32::from(input.u16()),
    };
    for markers in [false, true] {
        let room = mulpdu(emss, markers);
        assert!((MIN_MULPDU..=MAX_ULPDU).contains(&room));
        if emss >= 200 {
            let most = if markers { emss.div_ceil(512) * 4 } else { 0 };
            assert!(fpdu_len(room) + most <= emss || room == MAX_ULPDU);
            if room < MAX_ULPDU {
                assert!(fpdu_len(room + 1) + most > emss);
            }
        }
    }

    let header = [16, 20, 48, 72, 28, 32][input.below(6)];
    let size = input.u16();
    let room = max_payload(header, size);
    let within = size.clamp(MIN_MULPDU, MAX_ULPDU);
    assert_eq!(u32::from(room) + u32::from(header) - 2, u32::from(within));
    let len = match input.below(4) {
        0 => input.u32(),
        _ => u32::from(input.u16()),
    };
    let cost = message_cost(header, len, size);
    let full = u64::from(len.saturating_sub(1) / u32::from(room));
    let tail = u64::from(len) - full * u64::from(room);
    assert!(tail <= u64::from(room));
    let tail = header - 2 + tail as u16;
    assert_eq!(
        cost,
        full * u64::from(fpdu_len(within)) + u64::from(fpdu_len(tail))
    );
}
