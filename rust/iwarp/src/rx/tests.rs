// SPDX-License-Identifier: GPL-2.0

//! States that a stream reaches only after nearly 2^32 messages.

use super::*;
use crate::{
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
            Untagged,
            QN_ATOMIC_RESPONSE,
            QN_READ,
            QN_SEND, //
        },
        rdmap::{
            AtomicRequest,
            AtomicResponse,
            Header,
            ReadRequest,
            With, //
        }, //
    }, //
};

/// A whole FPDU without payload.
fn feed(rx: &mut RxMachine, header: Header) -> Result<Event> {
    let mut bytes = [0; 72];
    let len = header.emit(0, true, &mut bytes)?;
    let mut at = 0;
    while let Need::Header(n) = rx.need() {
        rx.fill(&bytes[at..at + n])?;
        at += n;
    }
    assert_eq!(at, len);
    if let Header::AtomicResponse(_, response) = header {
        rx.match_response(Some(Expect::Atomic(response.id)))?;
    }
    while let Need::Trailer(n) = rx.need() {
        rx.trailer(&[0; 7][..n])?;
    }
    rx.finish(0)
}

const REQUEST: ReadRequest = ReadRequest {
    sink_stag: Stag(1),
    sink_to: 0,
    len: 0,
    source_stag: Stag(1),
    source_to: 0,
};

fn receiver() -> RxMachine {
    let mut rx = RxMachine::new(RxConfig {
        crc: false,
        rtr: RtrSet::NONE,
        immediate: true,
        send_imm: true,
    });
    rx.send_msn = u32::MAX - 1;
    rx.read_msn = u32::MAX - 1;
    rx.atomic_response_msn = u32::MAX - 1;
    rx
}

fn send(msn: u32) -> Header {
    Header::Send {
        se: false,
        with: With::Nothing,
        ddp: Untagged {
            qn: QN_SEND,
            msn,
            mo: 0,
        },
    }
}

fn read(msn: u32) -> Header {
    let ddp = Untagged {
        qn: QN_READ,
        msn,
        mo: 0,
    };
    Header::ReadRequest(ddp, REQUEST)
}

fn immediate(msn: u32) -> Header {
    Header::Immediate {
        se: false,
        data: [1, 2, 3, 4],
        ddp: Untagged {
            qn: QN_SEND,
            msn,
            mo: 0,
        },
    }
}

const ADD: AtomicOp = AtomicOp::FetchAdd { add: 1, mask: 0 };

fn atomic(msn: u32) -> Header {
    let ddp = Untagged {
        qn: QN_READ,
        msn,
        mo: 0,
    };
    let request = AtomicRequest {
        id: msn,
        stag: Stag(1),
        to: 0,
        op: ADD,
    };
    Header::AtomicRequest(ddp, request)
}

fn response(msn: u32) -> Header {
    let ddp = Untagged {
        qn: QN_ATOMIC_RESPONSE,
        msn,
        mo: 0,
    };
    let response = AtomicResponse {
        id: 7,
        original: u64::from(msn),
    };
    Header::AtomicResponse(ddp, response)
}

/// MSNs wrap (RFC 5041 4.3), and 0 is as good as any other.
#[test]
fn message_numbers_wrap() {
    let mut rx = receiver();
    for expect in [u32::MAX - 1, u32::MAX, 0, 1] {
        match feed(&mut rx, send(expect)) {
            Ok(Event::Send { msn, .. }) => assert_eq!(msn, expect),
            other => panic!("{other:?}"),
        }
        match feed(&mut rx, read(expect)) {
            Ok(Event::ReadRequest { msn, .. }) => assert_eq!(msn, expect),
            other => panic!("{other:?}"),
        }
    }
    // MSNs that are behind, and MSNs that are ahead, are refused.
    for header in [send(1), send(3), send(u32::MAX), read(1), read(3)] {
        assert_eq!(feed(&mut rx.clone(), header), Err(Error::MsnRange));
    }
    // Immediate Data is counted with Sends, and Atomic Requests with Read Requests (RFC 7306 4.1).
    let mut rx = receiver();
    assert!(feed(&mut rx, immediate(u32::MAX - 1)).is_ok());
    assert!(feed(&mut rx, send(u32::MAX)).is_ok());
    assert!(feed(&mut rx, atomic(u32::MAX - 1)).is_ok());
    assert!(feed(&mut rx, read(u32::MAX)).is_ok());
    for msn in [0, 1] {
        let got = feed(&mut rx, immediate(msn));
        assert!(matches!(got, Ok(Event::Immediate { msn: got, .. }) if got == msn));
        let got = feed(&mut rx, atomic(msn));
        assert!(matches!(got, Ok(Event::AtomicRequest { msn: got, .. }) if got == msn));
    }
    // Atomic Responses have numbers of their own.
    for msn in [u32::MAX - 1, u32::MAX, 0, 1] {
        let original = u64::from(msn);
        let got = feed(&mut rx, response(msn));
        assert_eq!(got, Ok(Event::AtomicResponse { original }));
    }
    for header in [
        immediate(1),
        immediate(3),
        atomic(1),
        response(1),
        response(3),
    ] {
        assert_eq!(feed(&mut rx.clone(), header), Err(Error::MsnRange));
    }
    // Each queue has numbers of its own.
    let mut rx = receiver();
    rx.read_msn = 7;
    assert!(feed(&mut rx, send(u32::MAX - 1)).is_ok());
    assert!(feed(&mut rx, read(7)).is_ok());
}

/// The sender counts the same way.
#[test]
fn sent_message_numbers_wrap() {
    let mut tx = TxStream::near_the_last_message(false);
    let message = Message::Send {
        se: false,
        with: With::Nothing,
    };
    for expect in [u32::MAX - 1, u32::MAX, 0, 1] {
        assert_eq!(tx.begin(message, 0).msn(), Some(expect));
        let request = tx.begin(Message::ReadRequest(REQUEST), 0);
        assert_eq!(request.msn(), Some(expect));
        let response = AtomicResponse { id: 0, original: 0 };
        let response = tx.begin(Message::AtomicResponse(response), 0);
        assert_eq!(response.msn(), Some(expect));
    }
    // With the queues they share.
    let data = Message::Immediate {
        se: false,
        data: [0; 4],
    };
    assert_eq!(tx.begin(data, 0).msn(), Some(2));
    assert_eq!(tx.begin(message, 0).msn(), Some(3));
    let atomic = Message::AtomicRequest {
        stag: Stag(1),
        to: 0,
        op: ADD,
    };
    assert_eq!(tx.begin(atomic, 0).msn(), Some(2));
    assert_eq!(tx.begin(Message::ReadRequest(REQUEST), 0).msn(), Some(3));
}

/// The longest message there is: one byte more is refused, whatever its buffer holds.
#[test]
fn longest_message() {
    let mut rx = receiver();
    rx.send = Some(Progress {
        opcode: Opcode::Send,
        done: u32::MAX,
        with: With::Nothing,
        stag: None,
    });
    let mut bytes = [0; 72];
    let header = Header::Send {
        se: false,
        with: With::Nothing,
        ddp: Untagged {
            qn: QN_SEND,
            msn: u32::MAX - 1,
            mo: u32::MAX,
        },
    };
    let mut whole = rx.clone();
    match feed(&mut whole, header) {
        Ok(Event::Send { len, .. }) => assert_eq!(len, u32::MAX),
        other => panic!("{other:?}"),
    }
    let len = header.emit(1, true, &mut bytes);
    assert_eq!(len, Ok(20));
    assert_eq!(rx.fill(&bytes[..16]), Ok(None));
    assert_eq!(rx.fill(&bytes[16..20]), Err(Error::TooLong));
}
