// SPDX-License-Identifier: GPL-2.0

//! What is sent is what is received, in whatever pieces.

use super::{
    common::{
        unmark,
        Receiver, //
    },
    messages::Sent,
    pieces,
    Input, //
};
use iwarp::{
    tx::TxStream,
    wire::mpa::RtrSet, //
};

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (crc, markers) = (input.flag(), input.flag());
    let lengths = input.take(4);
    // With markers the CRC goes over them too, and we never ask for any: this receiver, which gets
    // them taken out, cannot check it.
    let mut rx = Receiver::new(crc && !markers, RtrSet::NONE);
    let sent = Sent::new(&mut input, &mut TxStream::new(crc, markers), &rx);
    rx.orq = sent.orq;
    let stream = if markers {
        unmark(&sent.stream)
    } else {
        sent.stream
    };
    for piece in pieces(&stream, lengths) {
        rx.feed(piece);
    }
    assert_eq!(rx.error, None);
    assert_eq!(rx.events, sent.events);
    assert_eq!(rx.sends, sent.sends);
    assert_eq!(rx.answers, sent.answers);
    assert!(rx.memory == sent.memory, "placed elsewhere, or not at all");
}
