// SPDX-License-Identifier: GPL-2.0

//! A sender and a receiver over a stream in memory, with every kind of split.

mod common;

use common::{
    header,
    pseudo_code,
    region,
    send,
    send_fpdu,
    unmark,
    Receiver,
    Rng,
    BASE, //
};
use iwarp::{
    mem::{
        atomic::AtomicOp,
        stag::Stag, //
    },
    mpa::rtr_message,
    rx::{
        Event,
        Expect,
        ReadExpect,
        RxConfig, //
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
            RtrKind,
            RtrSet, //
        },
        rdmap::{
            AtomicRequest,
            AtomicResponse,
            ReadRequest,
            With,
            SEND_HEADER,
            TAGGED_HEADER, //
        },
        terminate::{
            TermCode,
            Terminate, //
        }, //
    }, //
};

const PLAIN: Message<'_> = Message::Send {
    se: false,
    with: With::Nothing,
};

/// With fields, and with carries into their borders.
const ADD: AtomicOp = AtomicOp::FetchAdd {
    add: 0x1_ffff_ffff_8001,
    mask: 0x8000_0000_8000,
};
const SWAP: AtomicOp = AtomicOp::CmpSwap {
    compare: 0x1234_5678_9abc_def0,
    compare_mask: 0xff00,
    swap: 0x0123_4567_89ab_cdef,
    swap_mask: 0x00ff_00ff_ff00_ff00,
};

fn write(to: u64) -> Message<'static> {
    Message::Write {
        stag: region(0).stag,
        to,
    }
}

fn read_request(len: u32) -> ReadRequest {
    ReadRequest {
        sink_stag: region(0).stag,
        sink_to: BASE + 100,
        len,
        source_stag: Stag(0x9900),
        source_to: 77,
    }
}

/// A stream with everything in it, and what must come out.
fn everything(tx: &mut TxStream, rx: &mut Receiver, mulpdu: u16) -> (Vec<u8>, Vec<Event>) {
    let mut rng = Rng::new(5);
    let mut stream = Vec::new();
    let mut events = Vec::new();
    let inv = With::Invalidate(Stag(0x777));
    let imm = With::Immediate([0xff, 0, 0x80, 7]);
    for (se, with, len) in [
        (false, With::Nothing, 0),
        (true, With::Nothing, 1),
        (false, inv, 2),
        (true, inv, 333),
        (false, imm, 0),
        (true, imm, 400),
        (false, imm, 401),
        (false, With::Nothing, 1000),
    ] {
        let msn = events.len() as u32 + 1;
        stream.extend(send(
            tx,
            Message::Send { se, with },
            &rng.bytes(len),
            mulpdu,
        ));
        let len = len as u32;
        events.push(Event::Send { len, se, with, msn });
    }
    for (se, data) in [(true, [1, 2, 3, 4]), (false, [0xff; 4])] {
        let msn = events.len() as u32 + 1;
        stream.extend(send(tx, Message::Immediate { se, data }, &[], mulpdu));
        events.push(Event::Immediate { data, se, msn });
    }
    for len in [0, 3, 777] {
        let payload = rng.bytes(len);
        stream.extend(send(tx, write(BASE + 5000), &payload, mulpdu));
        events.push(Event::Write { len: len as u32 });
    }
    for (i, len) in [0, 50].into_iter().enumerate() {
        let request = read_request(len);
        stream.extend(send(tx, Message::ReadRequest(request), &[], mulpdu));
        events.push(Event::ReadRequest {
            msn: i as u32 + 1,
            request,
        });
    }
    for (msn, op) in [(3, ADD), (4, SWAP)] {
        let (stag, to) = (region(0).stag, BASE + 0x7000);
        let message = Message::AtomicRequest { stag, to, op };
        stream.extend(send(tx, message, &[], mulpdu));
        let id = msn;
        let request = AtomicRequest { id, stag, to, op };
        events.push(Event::AtomicRequest { msn, request });
    }
    for (id, original) in [(9, 0), (0xfedc_ba98, 0x0123_4567_89ab_cdef)] {
        rx.orq.push(Expect::Atomic(id));
        let response = AtomicResponse { id, original };
        stream.extend(send(tx, Message::AtomicResponse(response), &[], mulpdu));
        events.push(Event::AtomicResponse { original });
    }
    for len in [0u32, 1, 600] {
        let (stag, to) = (region(0).stag, BASE + 9);
        rx.orq.push(Expect::Read(ReadExpect { stag, to, len }));
        let message = Message::ReadResponse { stag, to };
        stream.extend(send(tx, message, &rng.bytes(len as usize), mulpdu));
        events.push(Event::ReadResponse { len });
    }
    let term = Terminate::for_read(TermCode::new(0, 1, 1), 2, &read_request(50), 10);
    stream.extend(send(tx, Message::Terminate(&term), &[], mulpdu));
    events.push(Event::Terminate(term));
    (stream, events)
}

fn fed(rx: &mut Receiver, stream: &[u8], cut: impl Fn(usize) -> usize) {
    let mut rest = stream;
    while !rest.is_empty() {
        let n = cut(stream.len() - rest.len()).clamp(1, rest.len());
        rx.feed(&rest[..n]);
        rest = &rest[n..];
    }
}

#[test]
fn any_two_pieces() {
    for crc in [false, true] {
        let mut probe = Receiver::new(crc, RtrSet::NONE);
        let (stream, _) = everything(&mut TxStream::new(crc, false), &mut probe, 200);
        for cut in 1..stream.len() {
            let mut rx = Receiver::new(crc, RtrSet::NONE);
            let (_, events) = everything(&mut TxStream::new(crc, false), &mut rx, 200);
            rx.feed(&stream[..cut]);
            rx.feed(&stream[cut..]);
            assert_eq!(rx.error, None, "{cut}");
            assert_eq!(rx.events, events, "{cut}");
        }
    }
}

#[test]
fn any_size_of_piece_and_fpdu() {
    for emss in [134, 200, 536, 1447, 1448, 9000] {
        for markers in [false, true] {
            let mulpdu = mulpdu(emss, markers);
            for piece in [1, 2, 3, 7, 16, 17, 100, 1448, 100_000] {
                let mut rx = Receiver::new(true, RtrSet::NONE);
                let mut tx = TxStream::new(!markers, markers);
                let (stream, events) = everything(&mut tx, &mut rx, mulpdu);
                let stream = if markers { unmark(&stream) } else { stream };
                if markers {
                    rx.rx = Receiver::new(false, RtrSet::NONE).rx;
                }
                fed(&mut rx, &stream, |_| piece);
                assert_eq!(rx.error, None);
                assert_eq!(rx.events, events);
            }
        }
    }
}

#[test]
fn what_is_sent_is_what_arrives() {
    let mut rng = Rng::new(77);
    for round in 0..300 {
        let mut rx = Receiver::new(true, RtrSet::NONE);
        let mut tx = TxStream::new(true, false);
        let mut memory = rx.memory.clone();
        let mut sends = Vec::new();
        let mut stream = Vec::new();
        for _ in 0..5 {
            let len = rng.below(6000) as usize;
            let payload = rng.bytes(len);
            let mulpdu = mulpdu(130 + rng.below(3000) as u32, false);
            if rng.below(2) == 0 {
                let at = rng.below(0x8000);
                stream.extend(send(&mut tx, write(BASE + at), &payload, mulpdu));
                memory[at as usize..][..payload.len()].copy_from_slice(&payload);
            } else {
                stream.extend(send(&mut tx, PLAIN, &payload, mulpdu));
                sends.push(payload);
            }
        }
        let mut rest = &stream[..];
        while !rest.is_empty() {
            let n = (1 + rng.below(2000) as usize).min(rest.len());
            rx.feed(&rest[..n]);
            rest = &rest[n..];
        }
        assert_eq!(rx.error, None, "{round}");
        assert!(rx.memory == memory && rx.sends == sends, "{round}");
        assert!(rx.rx.at_boundary());
    }
}

#[test]
fn tagged_between_untagged() {
    // Segments of a Write between those of a Send, as C siw may send them.
    let mut a = TxStream::new(true, false);
    let sends = send(&mut a, PLAIN, &[1; 300], 128);
    let writes = send(&mut a, write(BASE), &[2; 300], 128);
    let cut = |stream: &[u8]| -> Vec<Vec<u8>> {
        let mut rest = stream;
        let mut out = Vec::new();
        while !rest.is_empty() {
            let ulpdu = u16::from_be_bytes([rest[0], rest[1]]);
            let (fpdu, next) = rest.split_at(iwarp::wire::mpa::fpdu_len(ulpdu) as usize);
            out.push(fpdu.to_vec());
            rest = next;
        }
        out
    };
    let mut rx = Receiver::new(true, RtrSet::NONE);
    for (s, w) in cut(&sends).iter().zip(cut(&writes).iter()) {
        rx.feed(s);
        rx.feed(w);
    }
    assert_eq!(rx.error, None);
    assert_eq!(rx.events.len(), 2);
    assert_eq!(rx.sends, [vec![1; 300]]);
    assert_eq!(rx.memory[..300], [2; 300]);
}

#[test]
fn ready_to_receive() {
    let set = RtrSet::ALL;
    for kind in [RtrKind::Send, RtrKind::Write, RtrKind::Read] {
        let mut tx = TxStream::new(true, false);
        let mut rx = Receiver::new(true, set);
        rx.buffers = 1;
        assert!(rx.rx.awaits_first());
        rx.feed(&send(&mut tx, rtr_message(kind), &[], 1442));
        assert!(!rx.rx.awaits_first());
        let first = rx.events.pop().unwrap();
        match kind {
            RtrKind::Send => assert_eq!(first, Event::Rtr),
            RtrKind::Write => assert_eq!(first, Event::Write { len: 0 }),
            RtrKind::Read => {
                assert!(matches!(first, Event::ReadRequest { request, .. } if request.len == 0))
            }
        }
        // The next Send is the ULP's, empty or not.
        rx.feed(&send(&mut tx, PLAIN, &[], 1442));
        assert!(
            matches!(rx.events[..], [Event::Send { len: 0, .. }]),
            "{kind:?}"
        );
        assert_eq!((rx.error, rx.buffers), (None, 0));
    }
    // A Send that brings something is not "ready to receive", and what it brings is not lost.
    for with in [With::Invalidate(Stag(0x777)), With::Immediate([1, 2, 3, 4])] {
        let mut rx = Receiver::new(true, set);
        let message = Message::Send { se: false, with };
        rx.feed(&send(&mut TxStream::new(true, false), message, &[], 1442));
        assert!(matches!(rx.events[..], [Event::Send { with: got, .. }] if got == with));
        assert_eq!(rx.buffers, 999);
    }
    // Nor is Immediate Data.
    let mut rx = Receiver::new(true, set);
    let message = Message::Immediate {
        se: false,
        data: [0; 4],
    };
    rx.feed(&send(&mut TxStream::new(true, false), message, &[], 1442));
    assert!(matches!(rx.events[..], [Event::Immediate { .. }]));
    assert_eq!(rx.buffers, 999);
    // Not agreed on: an empty Send takes a buffer from the start. So does a first Send with
    // payload.
    for (set, payload) in [(RtrSet::WRITE, &[][..]), (RtrSet::ALL, &[1][..])] {
        let mut rx = Receiver::new(true, set);
        rx.feed(&send(&mut TxStream::new(true, false), PLAIN, payload, 1442));
        assert!(matches!(rx.events[..], [Event::Send { .. }]));
    }
}

#[test]
fn fpdus_fill_segments() {
    // A full FPDU is one MSS of stream, so that TSO cuts between FPDUs.
    let mulpdu = mulpdu(1448, false);
    for message in [PLAIN, write(0)] {
        let mut tx = TxStream::new(true, false);
        let mut msg = tx.begin(message, 100_000);
        let mut count = 0;
        while let Some(fpdu) = msg.fpdu(mulpdu) {
            assert!(fpdu.is_last() || fpdu.stream_len() == 1448);
            assert_eq!(fpdu.payload().0, msg.offset());
            msg.commit(&fpdu);
            count += 1;
        }
        let header = if message == PLAIN {
            SEND_HEADER
        } else {
            TAGGED_HEADER
        };
        let room = u32::from(max_payload(header, mulpdu));
        assert_eq!(room, 1448 - 4 - u32::from(header));
        assert_eq!(count, 100_000u32.div_ceil(room));
    }
    for len in [0, 1, 1427, 1428, 1429, 2856, 2857, u32::MAX] {
        let cost = message_cost(TAGGED_HEADER, len, mulpdu);
        assert!(cost >= u64::from(len) + 20);
    }
    assert_eq!(message_cost(TAGGED_HEADER, 0, mulpdu), 20);
    assert_eq!(message_cost(TAGGED_HEADER, 2856, mulpdu), 2 * 1448);
    assert_eq!(message_cost(TAGGED_HEADER, 2857, mulpdu), 2 * 1448 + 24);
    // A MULPDU out of range is brought into it.
    assert_eq!(max_payload(TAGGED_HEADER, 0), 114);
    assert_eq!(max_payload(TAGGED_HEADER, u16::MAX), 64768 - 14);
}

#[test]
fn tagged_offset_may_wrap_at_the_peer() {
    // Our user's mistake is for the peer to refuse, not for us to trip over.
    let mut msg = TxStream::new(true, false).begin(write(u64::MAX - 10), 1000);
    while let Some(fpdu) = msg.fpdu(128) {
        msg.commit(&fpdu);
    }
    assert!(msg.is_done());
}

#[test]
fn planning_changes_nothing() {
    let mut tx = TxStream::new(true, true);
    let msg = tx.begin(PLAIN, 5000);
    let (a, b) = (msg.fpdu(700).unwrap(), msg.fpdu(700).unwrap());
    assert_eq!(
        (header(&msg, &a), a.payload()),
        (header(&msg, &b), b.payload())
    );
    let (a, b): (Vec<_>, Vec<_>) = (tx.marker_plan(&a).collect(), tx.marker_plan(&b).collect());
    assert_eq!(a, b);
    // Another size may be chosen between planning and sending.
    assert_ne!(
        msg.fpdu(128).unwrap().payload(),
        msg.fpdu(700).unwrap().payload()
    );
}

#[test]
fn markers_of_a_long_fpdu() {
    // The first marker stands before the length field and does not count in the distance of the
    // next.
    let mut tx = TxStream::new(true, true);
    let pointers = |tx: &TxStream, len| {
        let fpdu = tx.clone().begin(PLAIN, len).fpdu(64768).unwrap();
        let plan = tx.marker_plan(&fpdu).map(|m| (m.at, m.fpduptr));
        (plan.collect::<Vec<_>>(), fpdu)
    };
    let (plan, fpdu) = pointers(&tx, 1976);
    assert_eq!(fpdu.stream_len(), 2000);
    assert_eq!(plan, [(0, 0), (508, 508), (1016, 1020), (1524, 1532)]);
    tx.sent(&fpdu);
    // 2016 bytes are gone: the next marker is due 32 bytes on.
    let (plan, fpdu) = pointers(&tx, 516);
    assert_eq!(fpdu.stream_len(), 540);
    assert_eq!(plan, [(32, 32)]);
    tx.sent(&fpdu);
    // 2560 = 5 * 512: due at once.
    assert_eq!(pointers(&tx, 0).0, [(0, 0)]);
    let stream = send(&mut TxStream::new(true, true), PLAIN, &[1; 5000], 64768);
    let mut rx = Receiver::new(false, RtrSet::NONE);
    rx.feed(&unmark(&stream));
    assert_eq!(rx.sends, [vec![1; 5000]]);
}

#[test]
fn message_numbers() {
    let mut tx = TxStream::new(true, false);
    let read = Message::ReadRequest(read_request(1));
    let numbers: Vec<_> = [PLAIN, read, PLAIN, write(0), read]
        .into_iter()
        .map(|m| tx.begin(m, 0).msn())
        .collect();
    assert_eq!(numbers, [Some(1), Some(1), Some(2), None, Some(2)]);
    // The queues of Sends and of Read Requests have more than one kind of message, and Atomic
    // Responses a queue of their own (RFC 7306 4.1).
    let data = Message::Immediate {
        se: false,
        data: [0; 4],
    };
    let atomic = Message::AtomicRequest {
        stag: Stag(1),
        to: 0,
        op: ADD,
    };
    let response = Message::AtomicResponse(AtomicResponse { id: 0, original: 0 });
    let numbers: Vec<_> = [data, atomic, response, PLAIN, read, response]
        .into_iter()
        .map(|m| tx.begin(m, 5).msn())
        .collect();
    assert_eq!(numbers, [3, 3, 1, 4, 4, 2].map(Some));
    // They have no payload, whatever the caller says.
    for message in [data, atomic, response] {
        assert_eq!(tx.begin(message, 5).len(), 0);
    }
}

/// Both directions: requests are done in the order of the stream, and answers find what they
/// answer.
#[test]
fn atomic_operations() {
    let mut rng = Rng::new(41);
    let (mut there, mut back) = (TxStream::new(true, false), TxStream::new(true, false));
    let mut requester = Receiver::new(true, RtrSet::NONE);
    let mut responder = Receiver::new(true, RtrSet::NONE);
    let mut values = [0u64; 3];
    let mut originals = Vec::new();
    for _ in 0..500 {
        let at = rng.below(3);
        let (stag, to) = (region(0).stag, BASE + 8 * at);
        let op = match rng.below(3) {
            0 => AtomicOp::FetchAdd {
                add: rng.next(),
                mask: rng.next() & rng.next(),
            },
            1 => AtomicOp::FetchAdd { add: 1, mask: 0 },
            _ => AtomicOp::CmpSwap {
                compare: values[at as usize] ^ rng.below(4),
                compare_mask: !rng.below(4),
                swap: rng.next(),
                swap_mask: rng.next(),
            },
        };
        let message = Message::AtomicRequest { stag, to, op };
        let mut msg = there.begin(message, 0);
        requester.orq.push(Expect::Atomic(msg.msn().unwrap()));
        responder.feed(&send_fpdu(&mut there, &mut msg, &[], 1442));
        let value = &mut values[at as usize];
        originals.push(*value);
        *value = pseudo_code(op, *value);
    }
    assert_eq!(responder.error, None);
    for answer in std::mem::take(&mut responder.answers) {
        requester.feed(&send(&mut back, Message::AtomicResponse(answer), &[], 1442));
    }
    assert_eq!(requester.error, None);
    assert!(requester.orq.is_empty());
    let expect: Vec<_> = originals
        .into_iter()
        .map(|original| Event::AtomicResponse { original })
        .collect();
    assert_eq!(requester.events, expect);
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect();
    assert_eq!(responder.memory[..24], bytes);
    assert!(responder.memory[24..].iter().all(|b| *b == 0));
}

/// What its consumer takes does not keep a receiver from taking the rest.
#[test]
fn what_the_consumer_takes() {
    for (immediate, send_imm) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut tx = TxStream::new(true, false);
        let config = RxConfig {
            crc: true,
            rtr: RtrSet::NONE,
            immediate,
            send_imm,
        };
        for (message, taken) in [
            (PLAIN, true),
            (
                Message::Immediate {
                    se: true,
                    data: [7; 4],
                },
                immediate,
            ),
            (
                Message::Send {
                    se: true,
                    with: With::Immediate([7; 4]),
                },
                send_imm,
            ),
        ] {
            let mut rx = Receiver::with(config);
            rx.feed(&send(&mut tx.clone(), message, &[], 1442));
            assert_eq!(rx.events.len(), usize::from(taken), "{message:?}");
            assert_eq!(rx.error.is_none(), taken, "{message:?}");
        }
        // Requests and responses do not concern the consumer.
        let mut rx = Receiver::with(config);
        rx.orq.push(Expect::Atomic(3));
        let response = AtomicResponse { id: 3, original: 4 };
        for message in [
            Message::AtomicRequest {
                stag: region(0).stag,
                to: BASE,
                op: ADD,
            },
            Message::AtomicResponse(response),
        ] {
            rx.feed(&send(&mut tx, message, &[], 1442));
        }
        assert_eq!((rx.error, rx.events.len()), (None, 2));
    }
}
