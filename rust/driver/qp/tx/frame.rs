// SPDX-License-Identifier: GPL-2.0

//! The framer: from messages to FPDUs, and from FPDUs to TCP.

use super::encode::{
    encode,
    encode_by_ref,
    Encoded, //
};
use crate::{
    qp::sgl::Sgl,
    stats::Counter,
    QpObj, //
};
use iwarp::{
    error::AccessError,
    tx::{
        Fpdu,
        TxMessage,
        TxStream, //
    },
    wire::mpa::mulpdu, //
};
use kernel::prelude::*;
use soft::tcp::{
    SendSock,
    TxBuf, //
};

/// Makes FPDUs of messages, and hands them to TCP.
pub(super) struct Framer {
    pub(super) stream: TxStream,
    /// FPDUs on their way to TCP.
    pub(super) buf: TxBuf,
    /// The largest ULPDU now.
    pub(super) mulpdu: u16,
    /// The largest payload of an FPDU sent by reference now, in bytes.
    pub(super) by_ref: u16,
    /// Bytes encoded, and bytes TCP has accepted.
    pub(super) encoded: u64,
    pub(super) accepted: u64,
    fpdus: u32,
}

impl Framer {
    /// A framer at the first byte of `stream`.
    pub(super) fn new(stream: TxStream) -> Self {
        let mulpdu = mulpdu(0, stream.markers());
        Self {
            stream,
            buf: TxBuf::new(),
            mulpdu,
            by_ref: 0,
            encoded: 0,
            accepted: 0,
            fpdus: 0,
        }
    }

    /// Encodes `fpdu` of `msg`, whose payload `copy` puts into the slice it is given.
    #[inline]
    pub(super) fn encode(
        &mut self,
        msg: &TxMessage<'_>,
        fpdu: &Fpdu,
        copy: impl FnOnce(&mut [u8]) -> Result<(), AccessError>,
    ) -> Encoded {
        let encoded = encode(&mut self.buf, &self.stream, msg, fpdu, copy);
        self.count(fpdu, &encoded);
        encoded
    }

    /// Encodes `fpdu` of `msg`, whose payload stays where `sges` has it.
    pub(super) fn encode_by_ref(
        &mut self,
        msg: &TxMessage<'_>,
        fpdu: &Fpdu,
        sges: &mut Sgl,
    ) -> Encoded {
        let encoded = encode_by_ref(&mut self.buf, &self.stream, msg, fpdu, sges);
        self.count(fpdu, &encoded);
        encoded
    }

    #[inline]
    fn count(&mut self, fpdu: &Fpdu, encoded: &Encoded) {
        if let Encoded::Done(bytes) = encoded {
            self.stream.sent(fpdu);
            self.encoded = self.encoded.wrapping_add(*bytes as u64);
            self.fpdus = self.fpdus.wrapping_add(1);
        }
    }

    /// Bytes encoded that TCP has not accepted.
    pub(super) fn pending(&self) -> usize {
        self.encoded.wrapping_sub(self.accepted) as usize
    }

    /// Hands TCP what is encoded.
    pub(super) fn push(&mut self, qp: &QpObj, sock: &SendSock, more: bool) -> Result<usize> {
        let bytes = self.pending();
        if bytes == 0 {
            return Ok(0);
        }
        let sent = sock.send(&mut self.buf, more)?;
        let fpdus = core::mem::take(&mut self.fpdus);
        trace::send(|| (qp.qp_num(), fpdus, bytes as u32, sent as u32));
        qp.stats.add(Counter::TxFpdus, u64::from(fpdus));
        qp.stats.add(Counter::TxBytes, sent as u64);
        self.accepted = self.accepted.wrapping_add(sent as u64);
        if sent < bytes {
            qp.stats.inc(Counter::TxSplit);
        }
        Ok(sent)
    }
}
