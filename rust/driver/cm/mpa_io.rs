// SPDX-License-Identifier: GPL-2.0

//! Moves the frames of the MPA handshake between a socket and the machines of `iwarp::mpa`.

use super::super::Device;
use super::MAX_DEPTH;
use base::{
    crc32c::Crc32c,
    errno, //
};
use iwarp::{
    cm::Read,
    error::MpaError,
    mpa::{
        Config,
        Initiator,
        Negotiated,
        Reply,
        Request,
        Responder,
        Revision,
        RtrSet,
        MAX_FRAME, //
    },
    tx::{
        Message,
        TxStream, //
    },
    wire::{
        mpa::MIN_MULPDU,
        rdmap::MAX_HEADER,
        terminate::{
            TermCode,
            Terminate, //
        }, //
    }, //
};
use kernel::prelude::*;
use soft::tcp::{
    SendSock,
    Socket, //
};

/// The configuration of a handshake on `dev` that asks for these read depths.
pub(super) fn config(dev: &Device, ird: u16, ord: u16, rtr: RtrSet) -> Config {
    let params = *dev.params.lock();
    Config {
        revision: params.mpa_rev,
        crc: params.crc,
        large_fpdus: params.large_fpdus,
        // A flag in reserved bits, as the one before.
        send_imm: params.large_fpdus,
        resume: params.resume,
        ird,
        ord,
        max_ird: MAX_DEPTH,
        max_ord: MAX_DEPTH,
        rtr,
    }
}

/// The configuration of the handshake that resumes a session. What it negotiates is not used,
/// because the stream goes on.
pub(super) fn config_of_session(dev: &Device) -> Config {
    Config {
        revision: Revision::One,
        resume: false,
        ..config(dev, 0, 0, RtrSet::NONE)
    }
}

/// The responder's machine for a new connection. The other end of a `pair` is this driver, too.
pub(super) fn responder(dev: &Device, pair: bool) -> Responder {
    let config = config(dev, MAX_DEPTH, MAX_DEPTH, RtrSet::NONE);
    Responder::new(Config {
        send_imm: config.send_imm || pair,
        // A session belongs to a connection that rdma_cm knows.
        resume: config.resume && !pair,
        ..config
    })
}

/// A machine that reads the peer's frame.
pub(super) trait Machine {
    type Frame;
    fn need(&self) -> usize;
    fn feed(&mut self, bytes: &[u8]) -> Result<Option<Self::Frame>, MpaError>;
}

impl Machine for Initiator {
    type Frame = Reply;

    fn need(&self) -> usize {
        self.need()
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<Option<Reply>, MpaError> {
        self.feed(bytes)
    }
}

impl Machine for Responder {
    type Frame = Request;

    fn need(&self) -> usize {
        self.need()
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<Option<Request>, MpaError> {
        self.feed(bytes)
    }
}

/// Reads what has arrived of the peer's frame, and no byte beyond it: an FPDU may follow in the
/// same segment (RFC 5044 7.1.3).
#[inline(never)]
pub(super) fn read<M: Machine>(sock: &Socket, machine: &mut M) -> Read<M::Frame, Error> {
    let mut buf = [0u8; MAX_FRAME];
    loop {
        let want = machine.need().min(buf.len());
        let Some(room) = buf.get_mut(..want).filter(|room| !room.is_empty()) else {
            return Read::Pending;
        };
        let got = match sock.recv(room) {
            Ok(0) => return Read::End(errno::econnreset()),
            Ok(got) => got,
            Err(e) if e == EAGAIN => return Read::Pending,
            Err(e) => return Read::End(e),
        };
        match machine.feed(buf.get(..got).unwrap_or(&[])) {
            Ok(Some(frame)) => return Read::Whole(frame),
            Ok(None) => {}
            Err(e) => return Read::Bad(e),
        }
    }
}

/// Sends a whole frame. It is the first data on a new connection, so there is space for it unless
/// memory is short.
pub(super) fn send(sock: &SendSock, frame: &[u8]) -> Result {
    if sock.send_bytes(frame)? == frame.len() {
        Ok(())
    } else {
        Err(ENOMEM)
    }
}

/// Sends a Terminate as the first and only FPDU of a stream (RFC 6581 9.1, 9.2): the negotiation
/// failed after MPA was up.
pub(super) fn send_terminate(sock: &Socket, net: &Negotiated, code: TermCode) -> Result {
    let mut stream = TxStream::new(net.crc, net.tx_markers);
    let term = Terminate::bare(code);
    let message = stream.begin(Message::Terminate(&term), 0);
    let fpdu = message.fpdu(MIN_MULPDU).ok_or(EINVAL)?;
    let mut header = [0; MAX_HEADER as usize];
    let header_len = message.emit(&fpdu, &mut header).ok_or(EINVAL)?;
    let header = header.get(..header_len).ok_or(EINVAL)?;
    let trailer = fpdu.trailer(None);
    let pad = trailer
        .bytes()
        .get(..usize::from(fpdu.pad()))
        .ok_or(EINVAL)?;

    let mut out: KVec<u8> = KVec::new();
    let mut markers = stream.marker_plan(&fpdu).peekable();
    for (at, byte) in (0u32..).zip(Iterator::chain(header.iter(), pad)) {
        if let Some(marker) = markers.next_if(|marker| marker.at == at) {
            out.extend_from_slice(&marker.bytes(), GFP_KERNEL)?;
        }
        out.push(*byte, GFP_KERNEL)?;
    }
    let crc = net.crc.then(|| {
        let mut crc = Crc32c::new();
        crc.update(&out);
        u32::from_le_bytes(crc.finish())
    });
    let trailer = fpdu.trailer(crc);
    out.extend_from_slice(trailer.bytes().get(pad.len()..).ok_or(EINVAL)?, GFP_KERNEL)?;
    send(&sock.lock(), &out)
}
