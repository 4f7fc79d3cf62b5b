// SPDX-License-Identifier: GPL-2.0

//! Shared by the tests: an explorer of interleavings, a CRC32c, a small random generator, a sender
//! and a receiver in memory.

#![allow(dead_code)] // Every test binary uses a part of it.

use iwarp::{
    error::{
        AccessOp,
        Error,
        Result, //
    },
    mem::{
        access::{
            check,
            Access,
            Accessor,
            Consumer,
            Need as Right,
            PdId,
            Region,
            Rights, //
        },
        atomic::AtomicOp,
        stag::{
            Secret,
            Stag,
            StagGenerator, //
        }, //
    },
    rx::{
        Event,
        Expect,
        Kind,
        Need,
        RxConfig,
        RxMachine,
        Segment, //
    },
    tx::{
        Fpdu,
        Message,
        TxMessage,
        TxStream, //
    },
    wire::{
        mpa::RtrSet,
        rdmap::{
            AtomicRequest,
            AtomicResponse, //
        }, //
    }, //
};
use std::{
    collections::HashSet,
    hash::{
        DefaultHasher,
        Hash,
        Hasher, //
    }, //
};

/// Explores all worlds that `steps` leads to. Returns them, and the ends, from which no step
/// leads on.
pub fn explore<W: Clone + Eq + Hash>(
    start: W,
    steps: impl Fn(&W) -> Vec<W>,
) -> (HashSet<W>, Vec<W>) {
    let (mut seen, mut todo, mut ends) = (HashSet::new(), vec![start], Vec::new());
    while let Some(world) = todo.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        let next = steps(&world);
        if next.is_empty() {
            ends.push(world);
        }
        todo.extend(next);
    }
    (seen, ends)
}

/// What one byte does to a CRC32c (Castagnoli), bit by bit: the polynomial, and no table to get
/// wrong.
const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 != 0 { 0x82f6_3b78 } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// CRC32c.
pub fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (crc >> 8) ^ CRC_TABLE[usize::from(crc as u8 ^ byte)]
    })
}

/// xorshift64*: the same numbers in every run.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// Sends a message whole; the stream's bytes, markers included.
pub fn send(tx: &mut TxStream, message: Message<'_>, payload: &[u8], mulpdu: u16) -> Vec<u8> {
    let mut out = Vec::new();
    let mut msg = tx.begin(message, payload.len() as u32);
    let cost = msg.cost(mulpdu);
    let mut unmarked = 0;
    while let Some(fpdu) = msg.fpdu(mulpdu) {
        unmarked += u64::from(fpdu.stream_len());
        out.extend(send_fpdu(tx, &mut msg, payload, mulpdu));
    }
    assert!(msg.is_done());
    assert_eq!(cost, unmarked);
    assert_eq!(msg.cost(mulpdu), 0);
    out
}

/// The header of an FPDU of `msg`.
pub fn header(msg: &TxMessage<'_>, fpdu: &Fpdu) -> Vec<u8> {
    let mut bytes = vec![0; usize::from(fpdu.header_len())];
    assert_eq!(msg.emit(fpdu, &mut bytes), Some(bytes.len()));
    assert!(bytes.len() <= usize::from(iwarp::wire::rdmap::MAX_HEADER));
    bytes
}

/// Sends the next FPDU of a message that is not done; its bytes, markers included.
pub fn send_fpdu(
    tx: &mut TxStream,
    msg: &mut TxMessage<'_>,
    payload: &[u8],
    mulpdu: u16,
) -> Vec<u8> {
    let fpdu = msg.fpdu(mulpdu).unwrap();
    let (offset, len) = fpdu.payload();
    let pad = usize::from(fpdu.pad());
    let mut body = header(msg, &fpdu);
    body.extend_from_slice(&payload[offset as usize..][..usize::from(len)]);
    body.resize(body.len() + pad, 0);
    assert_eq!(body.len() + 4, fpdu.stream_len() as usize);
    assert_eq!(fpdu.stream_len() % 4, 0);

    let plan = tx.marker_plan(&fpdu);
    let markers = plan.remaining() as usize;
    let mut marked = Vec::new();
    let mut done = 0;
    for marker in plan {
        let at = marker.at as usize;
        marked.extend_from_slice(&body[done..at]);
        marked.extend_from_slice(&marker.bytes());
        done = at;
    }
    marked.extend_from_slice(&body[done..]);
    assert_eq!(marked.len(), body.len() + 4 * markers);
    let trailer = fpdu.trailer(tx.crc().then(|| crc32c(&marked)));
    assert_eq!(trailer.bytes().len(), pad + 4);
    assert!(trailer.bytes()[..pad].iter().all(|b| *b == 0));
    marked.extend_from_slice(&trailer.bytes()[pad..]);

    tx.sent(&fpdu);
    msg.commit(&fpdu);
    marked
}

/// What an atomic operation makes of the target, as the pseudo code of RFC 7306 5.1.1 and 5.1.2
/// says.
pub fn pseudo_code(op: AtomicOp, original: u64) -> u64 {
    match op {
        AtomicOp::FetchAdd { add, mask } => {
            let (mut carry, mut value) = (0, 0);
            for bit in 0..64 {
                let location = 1u64 << bit;
                let val1 = (original & location) >> bit;
                let val2 = (add & location) >> bit;
                let sum = carry + val1 + val2;
                if sum & 1 != 0 {
                    value |= location;
                }
                let is_field_end = mask & location != 0;
                carry = u64::from(sum & 2 != 0 && !is_field_end);
            }
            value
        }
        AtomicOp::CmpSwap {
            compare,
            compare_mask,
            swap,
            swap_mask,
        } => {
            if (compare ^ original) & compare_mask == 0 {
                (original & !swap_mask) | (swap & swap_mask)
            } else {
                original
            }
        }
    }
}

/// A receiver with a little memory: what a driver does around the machine.
pub struct Receiver {
    pub rx: RxMachine,
    /// The region peers write to, and its bytes.
    pub region: Region,
    pub memory: Vec<u8>,
    /// Outstanding Reads and atomic operations, oldest first; the sink of Reads is the region.
    pub orq: Vec<Expect>,
    /// Receive buffers left, and their size.
    pub buffers: usize,
    pub buffer_len: usize,
    /// The message being received.
    pub incoming: Vec<u8>,
    pub events: Vec<Event>,
    pub sends: Vec<Vec<u8>>,
    /// What the peer's Atomic Requests are to be answered with.
    pub answers: Vec<AtomicResponse>,
    pub error: Option<Error>,
    crc: Vec<u8>,
}

/// A secret for tags: SipHash, as in the kernel, with a key that the tests choose.
#[derive(Clone, Copy)]
pub struct Boot(pub u64);

impl Secret for Boot {
    fn at(&self, point: [u64; 2]) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.0, point).hash(&mut hasher);
        hasher.finish()
    }
}

/// The tags in their order.
pub fn tags<S: Secret>(secret: S) -> impl Iterator<Item = Stag> {
    let generator = StagGenerator::new(secret);
    (0..).filter_map(move |n| generator.nth(n))
}

pub const PD: PdId = PdId(7);
pub const QP: u32 = 42;
pub const BASE: u64 = 0x1_0000;

pub fn region(len: u64) -> Region {
    Region {
        stag: Stag::new(0x1234, 0x56).unwrap(),
        kind: iwarp::mem::access::Kind::Mr,
        valid: true,
        touched: false,
        pd: PD,
        rights: iwarp::mem::access::Rights::LOCAL_WRITE
            .union(iwarp::mem::access::Rights::REMOTE_WRITE)
            .union(iwarp::mem::access::Rights::REMOTE_READ)
            .union(iwarp::mem::access::Rights::REMOTE_ATOMIC),
        base: BASE,
        len,
        bound_qp: None,
        windows: 0,
    }
}

impl Receiver {
    /// One that takes whatever there is.
    pub fn new(crc: bool, rtr: RtrSet) -> Self {
        Self::with(RxConfig {
            crc,
            rtr,
            immediate: true,
            send_imm: true,
        })
    }

    pub fn with(config: RxConfig) -> Self {
        Self {
            rx: RxMachine::new(config),
            region: region(0x1_0000),
            memory: vec![0; 0x1_0000],
            orq: Vec::new(),
            buffers: 1000,
            buffer_len: 0x4_0000,
            incoming: Vec::new(),
            events: Vec::new(),
            sends: Vec::new(),
            answers: Vec::new(),
            error: None,
            crc: Vec::new(),
        }
    }

    /// Takes in bytes of the stream, in whatever pieces they come.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        loop {
            let result = match self.rx.need() {
                Need::Stopped => return,
                Need::Finish => self.finish(),
                _ if bytes.is_empty() => return,
                Need::Header(n) => match self.header(bytes, n) {
                    Ok(taken) => {
                        bytes = &bytes[taken..];
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
                Need::Payload(n) => {
                    let (now, rest) = bytes.split_at((n as usize).min(bytes.len()));
                    bytes = rest;
                    self.payload(now)
                }
                Need::Trailer(n) => {
                    let (now, rest) = bytes.split_at(n.min(bytes.len()));
                    bytes = rest;
                    if self.rx.checks_crc() {
                        self.rx.trailer(now)
                    } else {
                        self.rx.skip_trailer(now.len())
                    }
                }
            };
            if let Err(error) = result {
                self.rx.stop();
                self.error = Some(error);
                assert_eq!(self.rx.need(), Need::Stopped);
                return;
            }
        }
    }

    /// The machine wants `want` bytes: gets them, or if there are more than that, all there are.
    fn header(&mut self, bytes: &[u8], want: usize) -> Result<usize> {
        let taken = if bytes.len() > want {
            let (taken, whole) = self.rx.fill_from(bytes)?;
            assert_eq!(whole, self.rx.segment().is_some());
            assert!(whole || taken == bytes.len());
            taken
        } else {
            let segment = self.rx.fill(bytes)?;
            assert_eq!(segment.as_ref(), self.rx.segment());
            bytes.len()
        };
        if let Some(segment) = self.rx.segment().copied() {
            self.crc = self.rx.header_bytes().to_vec();
            self.judge(&segment)?;
        }
        Ok(taken)
    }

    fn judge(&mut self, segment: &Segment) -> Result<()> {
        match segment.kind {
            Kind::Send(_) => {
                if segment.first && !segment.rtr {
                    self.incoming.clear();
                    self.buffers = self.buffers.checked_sub(1).ok_or(Error::NoBuffer)?;
                }
                if segment.offset as usize + usize::from(segment.len) > self.buffer_len {
                    return Err(Error::TooLong);
                }
            }
            Kind::Write(tagged) => {
                self.access(tagged.stag, tagged.to, segment.len, AccessOp::Write)?;
            }
            Kind::ReadResponse(tagged) => {
                if segment.first {
                    self.rx.match_response(self.orq.first().copied())?;
                }
                self.access(tagged.stag, tagged.to, segment.len, AccessOp::ReadResponse)?;
            }
            Kind::Immediate => {
                self.buffers = self.buffers.checked_sub(1).ok_or(Error::NoBuffer)?;
            }
            Kind::AtomicResponse => self.rx.match_response(self.orq.first().copied())?,
            Kind::ReadRequest | Kind::AtomicRequest | Kind::Terminate => {}
        }
        Ok(())
    }

    fn access(&self, stag: Stag, to: u64, len: u16, op: AccessOp) -> Result<u64> {
        let need = match op {
            AccessOp::Write => Right::RemoteWrite,
            AccessOp::AtomicRequest => Right::RemoteAtomic,
            _ => Right::LocalWrite,
        };
        let access = Access {
            stag,
            to,
            len: u64::from(len),
            need,
            touch: false,
            by: Accessor {
                pd: PD,
                qp: QP,
                consumer: Consumer::User,
                remote: Rights::REMOTE_WRITE.union(Rights::REMOTE_ATOMIC),
            },
        };
        let entry = (stag.index() == self.region.stag.index()).then_some(&self.region);
        check(entry, &access).map_err(|error| error.during(op))
    }

    fn payload(&mut self, bytes: &[u8]) -> Result<()> {
        let segment = *self.rx.segment().unwrap();
        let Need::Payload(left) = self.rx.need() else {
            unreachable!()
        };
        let before = usize::from(segment.len) - left as usize;
        match segment.kind {
            Kind::Write(tagged) | Kind::ReadResponse(tagged) => {
                let at = (tagged.to - BASE) as usize + before;
                self.memory[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Kind::Send(_) => self.incoming.extend_from_slice(bytes),
            // What is behind a Terminate.
            Kind::Terminate => {}
            kind => panic!("{kind:?} has no payload"),
        }
        self.crc.extend_from_slice(bytes);
        self.rx.advance(bytes.len() as u32)
    }

    /// Does what the peer asks for.
    fn operate(&mut self, request: &AtomicRequest) -> Result<()> {
        let AtomicRequest { id, stag, to, op } = *request;
        let at = self.access(stag, to, AtomicOp::LEN as u16, AccessOp::AtomicRequest)? as usize;
        if to % 8 != 0 {
            return Err(Error::Unaligned);
        }
        let target = &mut self.memory[at..at + 8];
        let original = u64::from_ne_bytes((&*target).try_into().unwrap());
        target.copy_from_slice(&op.apply(original).to_ne_bytes());
        self.answers.push(AtomicResponse { id, original });
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let mut covered = std::mem::take(&mut self.crc);
        covered.extend_from_slice(self.rx.pad_bytes());
        let event = self.rx.finish(crc32c(&covered))?;
        match event {
            Event::Send { .. } => self.sends.push(std::mem::take(&mut self.incoming)),
            Event::ReadResponse { .. } | Event::AtomicResponse { .. } => {
                self.orq.remove(0);
            }
            Event::AtomicRequest { request, .. } => self.operate(&request)?,
            _ => {}
        }
        if event != Event::Partial {
            self.events.push(event);
        }
        Ok(())
    }
}

/// Takes the markers out of a stream, and checks where they point: for a receiver that asked for
/// them.
pub fn unmark(stream: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut pointers = Vec::new();
    for (i, chunk) in stream.chunks(512).enumerate() {
        assert_eq!(chunk[..2], [0, 0]);
        let pointer = usize::from(u16::from_be_bytes([chunk[2], chunk[3]]));
        pointers.push((i * 512, pointer));
        out.extend_from_slice(&chunk[4..]);
    }
    // Walk the FPDUs by their lengths and see where each starts in the marked stream.
    let marked = |unmarked: usize| unmarked + 4 * (unmarked / 508 + 1);
    let mut starts = Vec::new();
    let mut at = 0;
    while at < out.len() {
        starts.push(marked(at));
        let ulpdu = u16::from_be_bytes([out[at], out[at + 1]]);
        at += iwarp::wire::mpa::fpdu_len(ulpdu) as usize;
    }
    for (marker, pointer) in pointers {
        if pointer == 0 {
            assert!(starts.contains(&(marker + 4)), "marker at {marker}");
        } else {
            let last = starts.iter().rfind(|start| **start < marker).unwrap();
            assert_eq!(*last, marker - pointer, "marker at {marker}");
        }
    }
    out
}
