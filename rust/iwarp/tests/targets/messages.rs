// SPDX-License-Identifier: GPL-2.0

//! Any sequence of messages, sent through the transmit machine.

use super::{
    common::{
        pseudo_code,
        region,
        send_fpdu,
        Receiver,
        Rng,
        BASE, //
    },
    Input, //
};
use iwarp::{
    mem::{
        atomic::AtomicOp,
        stag::Stag, //
    },
    rx::{
        Event,
        Expect,
        ReadExpect, //
    },
    tx::{
        Message,
        TxStream, //
    },
    wire::{
        mpa::mulpdu,
        rdmap::{
            AtomicRequest,
            AtomicResponse,
            ReadRequest,
            With, //
        },
        terminate::{
            TermCode,
            Terminate, //
        }, //
    }, //
};

/// A stream, and what its receiver must make of it.
pub struct Sent {
    pub stream: Vec<u8>,
    pub events: Vec<Event>,
    pub sends: Vec<Vec<u8>>,
    pub memory: Vec<u8>,
    /// What the receiver answers to Atomic Requests.
    pub answers: Vec<AtomicResponse>,
    /// Reads and atomic operations the receiver must have outstanding.
    pub orq: Vec<Expect>,
}

/// Bytes of all messages: enough for some long ones, and quick.
const BUDGET: usize = 80_000;

fn length(input: &mut Input<'_>) -> usize {
    match input.below(8) {
        0..4 => input.below(64),
        4..6 => usize::from(input.u16() % 2000),
        6 => usize::from(input.u16() % 6000),
        _ => usize::from(input.u16()),
    }
}

/// Room for one FPDU in a segment. Not less than any TCP grants, or the least MULPDU exceeds it.
fn emss(input: &mut Input<'_>) -> u32 {
    match input.below(4) {
        0 => 1448,
        1 => 200 + u32::from(input.u8()),
        2 => 200 + u32::from(input.u16() % 9000),
        _ => 200 + u32::from(input.u16()),
    }
}

fn read_request(input: &mut Input<'_>) -> ReadRequest {
    ReadRequest {
        sink_stag: Stag(input.u32()),
        sink_to: input.edge(),
        len: input.u32(),
        source_stag: Stag(input.u32()),
        source_to: input.edge(),
    }
}

fn with(input: &mut Input<'_>) -> With {
    match input.below(4) {
        0 | 1 => With::Nothing,
        2 => With::Invalidate(Stag(input.u32())),
        _ => With::Immediate(input.array()),
    }
}

pub fn operation(input: &mut Input<'_>) -> AtomicOp {
    if input.flag() {
        AtomicOp::FetchAdd {
            add: input.edge(),
            mask: input.edge(),
        }
    } else {
        AtomicOp::CmpSwap {
            compare: input.edge(),
            compare_mask: input.edge(),
            swap: input.edge(),
            swap_mask: input.edge(),
        }
    }
}

fn term(input: &mut Input<'_>) -> Terminate {
    // The layer has values RFC 5040 does not know; the one of C siw's is told by them.
    let code = TermCode::new(input.u8() % 3, input.u8() % 3, input.u8());
    match input.below(4) {
        0 | 2 => Terminate::bare(TermCode::CATASTROPHIC),
        1 => {
            let done = input.u32();
            Terminate::for_read(code, input.u32(), &read_request(input), done)
        }
        _ => Terminate::for_atomic(code, input.u32()),
    }
}

impl Sent {
    /// Sends what the input says. Each FPDU fits in the room it was made for, and fills it if there
    /// is more to come.
    pub fn new(input: &mut Input<'_>, tx: &mut TxStream, receiver: &Receiver) -> Self {
        let mut sent = Self {
            stream: Vec::new(),
            events: Vec::new(),
            sends: Vec::new(),
            memory: receiver.memory.clone(),
            answers: Vec::new(),
            orq: Vec::new(),
        };
        let mut rng = Rng::new(7);
        let (mut send_msn, mut read_msn) = (0u32, 0u32);
        let mut room = emss(input);
        for _ in 0..input.below(24) {
            let stag = region(0).stag;
            let len = length(input);
            let at = usize::from(input.u16()) % (sent.memory.len() - len);
            let to = BASE + at as u64;
            let with = with(input);
            let message = match input.below(10) {
                0 | 1 => Message::Send {
                    se: input.flag(),
                    with,
                },
                2 | 3 => Message::Write { stag, to },
                4 => Message::ReadResponse { stag, to },
                5 => Message::Immediate {
                    se: input.flag(),
                    data: input.array(),
                },
                6 | 7 => Message::AtomicRequest {
                    stag,
                    // Few targets, which meet each other and Writes.
                    to: BASE + (at as u64 & 0xff) * 8,
                    op: operation(input),
                },
                8 => Message::AtomicResponse(AtomicResponse {
                    id: input.u32(),
                    original: input.u64(),
                }),
                _ => Message::ReadRequest(read_request(input)),
            };
            if sent.stream.len() + len > BUDGET {
                break;
            }
            let payload = match message {
                Message::Send { .. } | Message::Write { .. } | Message::ReadResponse { .. } => {
                    rng.bytes(len)
                }
                _ => Vec::new(),
            };
            let len = len as u32;
            match message {
                Message::ReadResponse { .. } => {
                    let read = ReadExpect { stag, to, len };
                    sent.orq.push(Expect::Read(read));
                }
                Message::AtomicResponse(response) => sent.orq.push(Expect::Atomic(response.id)),
                _ => {}
            }
            // A stream that fails breaks a message off between two FPDUs.
            let mut fpdus = if input.below(16) == 0 {
                input.below(4)
            } else {
                usize::MAX
            };
            let mut msg = tx.begin(message, payload.len() as u32);
            while !msg.is_done() && fpdus > 0 {
                let before = msg.offset();
                let bytes = send_fpdu(tx, &mut msg, &payload, mulpdu(room, tx.markers()));
                assert!(bytes.len() <= room as usize, "{} {room}", bytes.len());
                if !msg.is_done() {
                    if tx.markers() {
                        let slack = 4 * (room / 512 + 2);
                        assert!(bytes.len() as u32 + slack > room, "{}", bytes.len());
                    } else {
                        assert_eq!(bytes.len() as u32, (room & !3).min(64_776));
                    }
                }
                let (from, upto) = (before as usize, msg.offset() as usize);
                if matches!(
                    message,
                    Message::Write { .. } | Message::ReadResponse { .. }
                ) {
                    sent.memory[at + from..at + upto].copy_from_slice(&payload[from..upto]);
                }
                sent.stream.extend(bytes);
                fpdus -= 1;
                if input.below(8) == 0 {
                    room = emss(input);
                }
            }
            if !msg.is_done() {
                break;
            }
            sent.events.push(match message {
                Message::Send { se, with } => {
                    send_msn += 1;
                    sent.sends.push(payload);
                    Event::Send {
                        len,
                        se,
                        with,
                        msn: send_msn,
                    }
                }
                Message::Immediate { se, data } => {
                    send_msn += 1;
                    Event::Immediate {
                        data,
                        se,
                        msn: send_msn,
                    }
                }
                Message::Write { .. } => Event::Write { len },
                Message::ReadResponse { .. } => Event::ReadResponse { len },
                Message::ReadRequest(request) => {
                    read_msn += 1;
                    Event::ReadRequest {
                        msn: read_msn,
                        request,
                    }
                }
                Message::AtomicRequest { stag, to, op } => {
                    read_msn += 1;
                    let request = AtomicRequest {
                        id: msg.msn().unwrap(),
                        stag,
                        to,
                        op,
                    };
                    let target = &mut sent.memory[(to - BASE) as usize..][..8];
                    let original = u64::from_ne_bytes((&*target).try_into().unwrap());
                    target.copy_from_slice(&pseudo_code(op, original).to_ne_bytes());
                    let id = request.id;
                    sent.answers.push(AtomicResponse { id, original });
                    Event::AtomicRequest {
                        msn: read_msn,
                        request,
                    }
                }
                Message::AtomicResponse(AtomicResponse { original, .. }) => {
                    Event::AtomicResponse { original }
                }
                Message::Terminate(_) => unreachable!(),
            });
        }
        if input.flag() {
            let term = term(input);
            let mut msg = tx.begin(Message::Terminate(&term), 0);
            sent.stream
                .extend(send_fpdu(tx, &mut msg, &[], mulpdu(room, tx.markers())));
            assert!(msg.is_done());
            sent.events.push(Event::Terminate(term));
        }
        sent
    }
}
