// SPDX-License-Identifier: GPL-2.0

//! Headers as bytes, and the examples of the RFCs.

mod common;

use common::{
    crc32c,
    send, //
};

#[path = "../../base/crc32c/table.rs"]
mod crc32c_table;

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
        Message,
        TxStream, //
    },
    wire::{
        ddp::{
            Control,
            Tagged,
            Untagged, //
        },
        mpa::{
            self,
            emit_frame,
            Enhanced,
            Frame,
            FrameKind,
            RtrKind,
            RtrSet, //
        },
        rdmap::{
            AtomicRequest,
            AtomicResponse,
            Header,
            Opcode,
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

const SINK: Stag = Stag(0xaabb_ccdd);
const SOURCE: Stag = Stag(0x1122_3344);
const READ: ReadRequest = ReadRequest {
    sink_stag: SINK,
    sink_to: 0x0102_0304_0506_0708,
    len: 0x1000,
    source_stag: SOURCE,
    source_to: 0x1112_1314_1516_1718,
};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|b| !b.is_ascii_whitespace())
        .map(|b| (b as char).to_digit(16).unwrap() as u8)
        .collect();
    digits.chunks(2).map(|d| (d[0] << 4) | d[1]).collect()
}

fn emitted(header: &Header, payload: u16, last: bool) -> Vec<u8> {
    let mut out = [0xee; 72];
    let len = header.emit(payload, last, &mut out).unwrap();
    assert_eq!(len, usize::from(header.len()));
    // Too little room is an error, never a short header.
    for short in 0..len {
        assert_eq!(
            header.emit(payload, last, &mut vec![0; short]),
            Err(Error::Buffer)
        );
    }
    out[..len].to_vec()
}

fn both_ways(header: Header, payload: u16, last: bool, bytes: &str) {
    let bytes = hex(bytes);
    assert_eq!(emitted(&header, payload, last), bytes);
    let (preamble, parsed) = Header::parse(&bytes).unwrap();
    assert_eq!(parsed, header);
    assert_eq!(preamble.ulpdu, header.len() - 2 + payload);
    assert_eq!(preamble.control.last, last);
    assert_eq!(preamble.control.version, 1);
    assert_eq!(preamble.control.rdmap_version, 1);
    assert_eq!(Opcode::from_wire(preamble.control.opcode), header.opcode());
    for short in 0..bytes.len() {
        let terminate = matches!(header, Header::Terminate(..));
        if !terminate || short < 24 {
            assert!(Header::parse(&bytes[..short]).is_err(), "{short}");
        }
    }
}

#[test]
fn write_and_read_response() {
    let tagged = Tagged {
        stag: SINK,
        to: 0x0102_0304_0506_0708,
    };
    both_ways(
        Header::Write(tagged),
        4,
        true,
        "0012 c140 aabbccdd 0102030405060708",
    );
    both_ways(
        Header::Write(tagged),
        4,
        false,
        "0012 8140 aabbccdd 0102030405060708",
    );
    both_ways(
        Header::ReadResponse(tagged),
        0,
        true,
        "000e c142 aabbccdd 0102030405060708",
    );
}

#[test]
fn sends() {
    let ddp = Untagged {
        qn: 0,
        msn: 5,
        mo: 0x10,
    };
    let send = |se, with| Header::Send { se, with, ddp };
    both_ways(
        send(false, With::Nothing),
        24,
        true,
        "002a 4143 00000000 00000000 00000005 00000010",
    );
    both_ways(
        send(false, With::Invalidate(SINK)),
        0,
        true,
        "0012 4144 aabbccdd 00000000 00000005 00000010",
    );
    both_ways(
        send(true, With::Nothing),
        1,
        false,
        "0013 0145 00000000 00000000 00000005 00000010",
    );
    both_ways(
        send(true, With::Invalidate(SINK)),
        0,
        true,
        "0012 4146 aabbccdd 00000000 00000005 00000010",
    );
}

/// A Send of our own: the opcode for experiments (RFC 6580 3.4), and the reserved bit in front of
/// it for the solicited event.
#[test]
fn sends_with_immediate_data() {
    let ddp = Untagged {
        qn: 0,
        msn: 5,
        mo: 0x10,
    };
    let with = With::Immediate([0xaa, 0xbb, 0xcc, 0xdd]);
    both_ways(
        Header::Send {
            se: false,
            with,
            ddp,
        },
        24,
        true,
        "002a 414f aabbccdd 00000000 00000005 00000010",
    );
    both_ways(
        Header::Send {
            se: true,
            with,
            ddp,
        },
        1,
        false,
        "0013 015f aabbccdd 00000000 00000005 00000010",
    );
    // The other reserved bit is not looked at.
    let (_, header) = Header::parse(&hex("0012 416f aabbccdd 00000000 00000005 00000010")).unwrap();
    assert_eq!(header.opcode(), Opcode::SendImm);
}

/// RFC 7306 figures 2 and 7.
#[test]
fn immediate_data() {
    let ddp = Untagged {
        qn: 0,
        msn: 7,
        mo: 0,
    };
    let data = [0xaa, 0xbb, 0xcc, 0xdd];
    for (se, bytes) in [
        (
            false,
            "001a 4148 00000000 00000000 00000007 00000000 aabbccdd 00000000",
        ),
        (
            true,
            "001a 4149 00000000 00000000 00000007 00000000 aabbccdd 00000000",
        ),
    ] {
        let header = Header::Immediate { se, data, ddp };
        both_ways(header, 0, true, bytes);
        // Verbs have 32 of its 64 bits. Those behind them are the sender's affair, and so is the
        // field that others have for an STag (RFC 7306 4.1).
        let mut other = hex(bytes);
        other[4..8].fill(0x11);
        other[24..].fill(0x22);
        assert_eq!(Header::parse(&other).unwrap().1, header);
    }
}

/// RFC 7306 figures 2, 4 and 5.
#[test]
fn atomic_requests() {
    let ddp = Untagged {
        qn: 1,
        msn: 9,
        mo: 0,
    };
    let request = |op| AtomicRequest {
        id: 0xfedc_ba98,
        stag: SINK,
        to: 0x0102_0304_0506_0708,
        op,
    };
    let add = Header::AtomicRequest(
        ddp,
        request(AtomicOp::FetchAdd {
            add: 0x2122_2324_2526_2728,
            mask: 0x3132_3334_3536_3738,
        }),
    );
    // What is for CmpSwap only is 0 and all ones.
    let bytes = "0046 414a 00000000 00000001 00000009 00000000
         00000000 fedcba98 aabbccdd 0102030405060708
         2122232425262728 3132333435363738 0000000000000000 ffffffffffffffff";
    both_ways(add, 0, true, bytes);
    // It is ignored, as all but the last four bits of the AOpCode are.
    let mut other = hex(bytes);
    other[4..8].fill(0x11);
    other[20..23].fill(0xff);
    other[23] = 0xf0;
    other[56..].fill(0x55);
    assert_eq!(Header::parse(&other).unwrap().1, add);

    let swap = request(AtomicOp::CmpSwap {
        compare: 0x4142_4344_4546_4748,
        compare_mask: 0x5152_5354_5556_5758,
        swap: 0x2122_2324_2526_2728,
        swap_mask: 0x3132_3334_3536_3738,
    });
    both_ways(
        Header::AtomicRequest(ddp, swap),
        0,
        true,
        "0046 414a 00000000 00000001 00000009 00000000
         00000002 fedcba98 aabbccdd 0102030405060708
         2122232425262728 3132333435363738 4142434445464748 5152535455565758",
    );
    // There is no other operation (RFC 7306 10.1).
    for code in (0..16).filter(|code| ![0, 2].contains(code)) {
        other[23] = code;
        assert_eq!(Header::parse(&other), Err(Error::Opcode), "{code}");
    }
    // A message is named by its MSN, which nobody else has at the time.
    let mut tx = TxStream::new(false, false);
    let op = AtomicOp::FetchAdd { add: 1, mask: 0 };
    let message = Message::AtomicRequest {
        stag: SINK,
        to: 8,
        op,
    };
    send(&mut tx, message, &[], 1448);
    assert_eq!(
        send(&mut tx, message, &[], 1448),
        hex("0046 414a 00000000 00000001 00000002 00000000
         00000000 00000002 aabbccdd 0000000000000008
         0000000000000001 0000000000000000 0000000000000000 ffffffffffffffff 00000000")
    );
}

/// RFC 7306 figures 2 and 6.
#[test]
fn atomic_responses() {
    let ddp = Untagged {
        qn: 3,
        msn: 9,
        mo: 0,
    };
    let response = AtomicResponse {
        id: 0xfedc_ba98,
        original: 0x0102_0304_0506_0708,
    };
    both_ways(
        Header::AtomicResponse(ddp, response),
        0,
        true,
        "001e 414b 00000000 00000003 00000009 00000000 fedcba98 0102030405060708",
    );
    let mut tx = TxStream::new(false, false);
    assert_eq!(
        send(&mut tx, Message::AtomicResponse(response), &[], 1448),
        hex("001e 414b 00000000 00000003 00000001 00000000
             fedcba98 0102030405060708 00000000")
    );
}

#[test]
fn queues_of_opcodes() {
    let queues = [
        None,
        Some(1),
        None,
        Some(0),
        Some(0),
        Some(0),
        Some(0),
        Some(2),
        Some(0),
        Some(0),
        Some(1),
        Some(3),
    ];
    for (bits, queue) in queues.into_iter().enumerate() {
        assert_eq!(Opcode::from_wire(bits as u8).queue(), queue, "{bits}");
    }
    for bits in [0x0f, 0x1f] {
        assert_eq!(Opcode::from_wire(bits).queue(), Some(0));
    }
    for bits in 12..15 {
        assert_eq!(Opcode::from_wire(bits), Opcode::Unknown(bits));
    }
    for bits in 0..0x20 {
        let se = [5, 6, 9, 0x1f].contains(&bits);
        assert_eq!(Opcode::from_wire(bits).is_solicited(), se, "{bits}");
    }
}

#[test]
fn read_request() {
    let ddp = Untagged {
        qn: 1,
        msn: 9,
        mo: 0,
    };
    both_ways(
        Header::ReadRequest(ddp, READ),
        0,
        true,
        "002e 4141 00000000 00000001 00000009 00000000
         aabbccdd 0102030405060708 00001000 11223344 1112131415161718",
    );
}

#[test]
fn terminates() {
    let ddp = Untagged {
        qn: 2,
        msn: 1,
        mo: 0,
    };
    let crc = Terminate::bare(TermCode::new(2, 0, 2));
    both_ways(
        Header::Terminate(ddp, crc),
        0,
        true,
        "0016 4147 00000000 00000002 00000001 00000000 20020000",
    );
    let tagged = Terminate {
        ddp_len: Some(0x20),
        ddp: DdpCopy::from_bytes(&hex("c140 aabbccdd 0102030405060708")),
        ..Terminate::bare(TermCode::new(1, 1, 1))
    };
    both_ways(
        Header::Terminate(ddp, tagged),
        0,
        true,
        "0026 4147 00000000 00000002 00000001 00000000
         1101c000 0020 c140 aabbccdd 0102030405060708",
    );
    // A Read that failed after 0x200 of 0x1000 bytes: moved on (RFC 5040 4.8).
    let read = Terminate::for_read(TermCode::new(0, 1, 2), 9, &READ, 0x200);
    both_ways(
        Header::Terminate(ddp, read),
        0,
        true,
        "0046 4147 00000000 00000002 00000001 00000000
         0102e000 002e 4141 00000000 00000001 00000009 00000000
         aabbccdd 0102030405060908 00000e00 11223344 1112131415161918",
    );
    // One about an Atomic Request does not carry it (RFC 7306 8.1).
    let atomic = Terminate::for_atomic(TermCode::new(0, 2, 7), 0x0102_0304);
    both_ways(
        Header::Terminate(ddp, atomic),
        0,
        true,
        "002a 4147 00000000 00000002 00000001 00000000
         0207c000 0046 414a 00000000 00000001 01020304 00000000",
    );
    let copy = read.ddp.unwrap();
    assert_eq!(
        copy.untagged(),
        Some(Untagged {
            qn: 1,
            msn: 9,
            mo: 0
        })
    );
    assert_eq!(copy.tagged(), None);
    let copy = tagged.ddp.unwrap();
    assert_eq!(copy.untagged(), None);
    assert_eq!(copy.tagged().unwrap().stag, SINK);
}

/// C siw writes the control word through bit fields of the host's order.
#[test]
fn terminates_of_c_siw() {
    for (bytes, code, with_ddp, with_read) in [
        // DDP tagged base/bounds, M and D.
        (
            "11 01 03 00 0004 c140aabbccdd0102030405060708",
            (1, 1, 1),
            true,
            false,
        ),
        // RDMAP protection, M, D and R.
        (
            "10 00 07 00 0000 4141 00000000 00000001 00000009 00000000
             aabbccdd 0102030405060708 00001000 11223344 1112131415161718",
            (0, 1, 0),
            true,
            true,
        ),
        // MPA CRC error, no flags: 0/2/02 does not exist.
        ("02 02 00 00", (2, 0, 2), false, false),
        // RDMAP operation, unexpected opcode, no flags: 2/0/06 exists too, and the RFC's order
        // wins.
        ("20 06 00 00", (2, 0, 6), false, false),
        // Catastrophic.
        ("00 ff 00 00", (0, 0, 0xff), false, false),
    ] {
        let term = Terminate::parse(&hex(bytes)).unwrap();
        assert_eq!(
            (term.code.layer, term.code.etype, term.code.ecode),
            code,
            "{bytes}"
        );
        assert_eq!(term.ddp.is_some(), with_ddp, "{bytes}");
        assert_eq!(term.read.is_some(), with_read, "{bytes}");
    }
    let straight = Terminate::parse(&hex("11 01 c0 00 0020 c140aabbccdd0102030405060708")).unwrap();
    assert!(!straight.nibbles_swapped);
    assert_eq!(straight.ddp_len, Some(0x20));
    // Cut short: what is there counts.
    let cut = Terminate::parse(&hex("11 01 c0 00 0020 c140aa")).unwrap();
    assert_eq!((cut.ddp_len, cut.ddp), (Some(0x20), None));
    assert!(Terminate::parse(&hex("110100")).is_err());
}

/// RFC 5044 figures 5 and 6.
#[test]
fn annotated_dumps_of_the_rfc() {
    let mut tx = TxStream::new(true, true);
    let plain = Message::Send {
        se: false,
        with: With::Nothing,
    };
    let first = send(&mut tx, plain, &[0; 24], 1448);
    let expected = hex("00000000 002a 4143 00000000 00000000 00000001 00000000
         000000000000000000000000000000000000000000000000 52239983");
    assert_eq!(first, expected);

    // The second example stands behind a first FPDU that, with its marker, ends at 0x1ec.
    let mut tx = TxStream::new(true, true);
    let first = send(&mut tx, plain, &[0; 492 - 4 - 20 - 4], 1448);
    assert_eq!(first.len(), 0x1ec);
    let second = send(&mut tx, plain, &[0; 24], 1448);
    let expected = hex("002a 4143 00000000 00000000 00000002 00000000 00000014
         000000000000000000000000000000000000000000000000 84925898");
    assert_eq!(second, expected);
}

#[test]
fn crc_of_iscsi() {
    // RFC 3720 B.4.
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    assert_eq!(
        iwarp::tx::crc_to_wire(0x8a91_36aa),
        [0xaa, 0x36, 0x91, 0x8a]
    );
}

#[test]
fn crc_by_table() {
    use crc32c_table::{add_byte, add_word};
    let bytes: Vec<u8> = (0..200u32).map(|i| (i * i >> 3) as u8).collect();
    for end in 0..=bytes.len() {
        let (words, rest) = bytes[..end].split_at(end / 8 * 8);
        let crc = words.chunks(8).fold(!0, |crc, word| {
            add_word(crc, u64::from_le_bytes(word.try_into().unwrap()))
        });
        let crc = rest.iter().fold(crc, |crc, byte| add_byte(crc, *byte));
        assert_eq!(!crc, crc32c(&bytes[..end]));
    }
}

#[test]
fn control_octets() {
    for a in 0..=255u8 {
        for b in 0..=255u8 {
            let control = Control::from_bytes([a, b]);
            // The reserved bits are dropped, but for one of the opcode for experiments.
            let kept = if b & 0x0f == 0x0f { 0x1f } else { 0x0f };
            assert_eq!(control.to_bytes(), [a & 0xc3, b & (0xc0 | kept)]);
            assert_eq!(Opcode::from_wire(control.opcode).to_wire(), b & kept);
        }
    }
}

#[test]
fn opcode_contradicts_tag_bit() {
    let mut bytes = hex("0012 c140 aabbccdd 0102030405060708 00000000");
    bytes[2] &= 0x7f;
    assert_eq!(Header::parse(&bytes).unwrap_err(), Error::Opcode);
    let bytes = hex("0012 c143 aabbccdd 0102030405060708 00000000");
    assert_eq!(Header::parse(&bytes).unwrap_err(), Error::Opcode);
    for opcode in 8..16 {
        let mut bytes = [hex("0046 c140"), vec![0; 68]].concat();
        bytes[3] |= opcode;
        assert_eq!(Header::parse(&bytes), Err(Error::Opcode));
    }
}

#[test]
fn start_up_frames() {
    let frame = Frame {
        kind: FrameKind::Request,
        markers: false,
        crc: true,
        reject: false,
        enhanced: false,
        large: false,
        send_imm: false,
        resume: false,
        revision: 2,
        pd_len: 0,
    };
    let enhanced = Enhanced {
        p2p: true,
        rtr: RtrSet::WRITE.union(RtrSet::READ),
        ird: 0x21,
        ord: 0x10,
    };
    let mut out = [0; 532];
    let len = emit_frame(&frame, Some(enhanced), [b"hi", &[]], &mut out).unwrap();
    let expected = hex("4d504120494420526571204672616d65 50 02 0006 8021 c010 6869");
    assert_eq!(out[..len], expected);
    let parsed = Frame::parse(&out).unwrap();
    assert_eq!(
        parsed,
        Frame {
            enhanced: true,
            pd_len: 6,
            ..frame
        }
    );
    assert_eq!(Enhanced::parse(&out[20..]).unwrap(), enhanced);

    let reply = Frame {
        kind: FrameKind::Reply,
        markers: true,
        reject: true,
        ..frame
    };
    let len = emit_frame(&reply, None, [&[]; 2], &mut out).unwrap();
    assert_eq!(
        out[..len],
        hex("4d504120494420526570204672616d65 e0 02 0000")
    );

    // Reserved bits: no error when received, and zero when sent, but for three in requests and two
    // in replies.
    // In a reply these do not count beside those of the request, as if all of them had been kept.
    for bits in 0..16 {
        for (kind, large, send_imm, sent) in [
            (FrameKind::Request, bits & 8 != 0, bits & 2 != 0, [8, 2]),
            (FrameKind::Reply, bits & 0xc == 4, bits & 3 == 1, [4, 1]),
        ] {
            emit_frame(&Frame { kind, ..reply }, None, [&[]; 2], &mut out).unwrap();
            out[16] |= bits;
            let odd = Frame::parse(&out).unwrap();
            assert_eq!(
                (odd.large, odd.send_imm),
                (large, send_imm),
                "{kind:?} {bits:#x}"
            );
            assert_eq!(emit_frame(&odd, None, [&[]; 2], &mut out), Ok(20));
            let large = if large { sent[0] } else { 0 };
            let send_imm = if send_imm { sent[1] } else { 0 };
            let resume = if kind == FrameKind::Request {
                bits & 1
            } else {
                0
            };
            assert_eq!(odd.resume, resume != 0, "{kind:?} {bits:#x}");
            assert_eq!(out[16], 0xe0 | large | send_imm | resume);
        }
    }

    out[3] ^= 1;
    assert_eq!(Frame::parse(&out), Err(MpaError::Key));
    out[3] ^= 1;
    out[18] = 2;
    assert_eq!(Frame::parse(&out).unwrap().pd_len, 512);
    out[19] = 1;
    assert_eq!(Frame::parse(&out), Err(MpaError::PrivateDataLength));
    assert_eq!(Frame::parse(&out[..19]), Err(MpaError::Key));
    assert_eq!(
        emit_frame(&reply, None, [&[0; 513], &[]], &mut [0; 600]),
        Err(Error::Buffer)
    );
    assert_eq!(
        emit_frame(&reply, Some(enhanced), [&[0; 509], &[]], &mut [0; 600]),
        Err(Error::Buffer)
    );
    assert_eq!(
        emit_frame(&reply, None, [&[0; 5], &[]], &mut [0; 24]),
        Err(Error::Buffer)
    );
}

#[test]
fn enhanced_data_without_peer_to_peer() {
    // B, C and D do not count when A is unset (RFC 6581 9.2).
    let data = Enhanced::parse(&hex("7fff ffff")).unwrap();
    assert!(!data.p2p && data.rtr.is_empty());
    assert_eq!((data.ird, data.ord), (0x3fff, 0x3fff));
    let sent = Enhanced {
        rtr: RtrSet::ALL,
        ..data
    };
    assert_eq!(sent.to_bytes().to_vec(), hex("3fff 3fff"));
    assert_eq!(Enhanced::parse(&[0; 3]), Err(MpaError::EnhancedData));
    let all = Enhanced::parse(&hex("c001 c002")).unwrap();
    for kind in [RtrKind::Send, RtrKind::Write, RtrKind::Read] {
        assert!(all.rtr.contains(kind));
        assert!(!all.rtr.without(kind).contains(kind));
    }
}

#[test]
fn sizes() {
    for ulpdu in 0..=u16::MAX {
        assert_eq!((u32::from(ulpdu) + 2 + u32::from(mpa::pad(ulpdu))) % 4, 0);
        assert!(mpa::pad(ulpdu) < 4);
        assert_eq!(mpa::fpdu_len(ulpdu) % 4, 0);
    }
    // A full FPDU is one MSS to the byte, if the MSS is a multiple of 4.
    for emss in [536, 1448, 1460, 8948, 64000] {
        assert_eq!(mpa::fpdu_len(mpa::mulpdu(emss, false)), emss, "{emss}");
    }
    for emss in 0..70_000 {
        let plain = mpa::mulpdu(emss, false);
        let marked = mpa::mulpdu(emss, true);
        assert!((128..=64768).contains(&plain) && (128..=64768).contains(&marked));
        if (200..64_000).contains(&emss) {
            assert!(mpa::fpdu_len(plain) <= emss && mpa::fpdu_len(plain) + 4 > emss - emss % 4);
            assert!(mpa::fpdu_len(marked) + 4 * emss.div_ceil(512) <= emss);
        }
    }
    assert_eq!(mpa::mulpdu(u32::MAX, true), 64768);
}
