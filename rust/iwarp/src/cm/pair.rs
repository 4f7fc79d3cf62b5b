// SPDX-License-Identifier: GPL-2.0

//! Queue pairs that are connected without a connection manager.
//!
//! Their programs have exchanged GIDs, queue pair numbers and packet sequence numbers (PSN) by
//! means of their own, and each has told its side in `modify_qp`. iWARP has no use for PSNs, but
//! they are what both ends know and nobody else does. One end connects, the other one accepts; the
//! private data of the MPA frames, a [`Hello`], says which queue pair wants which, and shows that
//! the sender knows the PSNs.

/// Whether this end is the one that connects.
///
/// Both ends compute it, each from its side, from the pairs of GID and queue pair number. `None` if
/// the two are the same: a queue pair is not connected with itself.
pub fn connects(local: (&[u8; 16], u32), remote: (&[u8; 16], u32)) -> Option<bool> {
    match local.cmp(&remote) {
        core::cmp::Ordering::Greater => Some(true),
        core::cmp::Ordering::Less => Some(false),
        core::cmp::Ordering::Equal => None,
    }
}

/// What one end tells the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Number of the sender's QP.
    pub qpn: u32,
    /// Number of the QP that the sender wants.
    pub peer_qpn: u32,
    /// PSN that is expected in what the peer sends.
    pub rq_psn: u32,
    /// PSN of what will be sent; not known before `RTS`.
    pub sq_psn: Option<u32>,
    /// Chosen anew by the connecting end for every attempt, repeated in the answer.
    pub nonce: u64,
}

/// "siwQ", and the version of what follows.
const MAGIC: [u8; 5] = *b"siwQ\x01";
/// There is a `sq_psn`.
const SQ_PSN: u8 = 1;
/// PSNs have 24 bits.
const PSN: u32 = 0x00ff_ffff;

impl Hello {
    /// Bytes of a hello: magic (4), version (1), flags (1), zero (2), then in network order `qpn`,
    /// `peer_qpn`, `rq_psn`, `sq_psn` (4 each) and `nonce` (8).
    pub const LEN: usize = 32;

    /// Its bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let [m0, m1, m2, m3, version] = MAGIC;
        let flags = if self.sq_psn.is_some() { SQ_PSN } else { 0 };
        let mut out = [0; Self::LEN];
        let words = [
            u32::from_be_bytes([m0, m1, m2, m3]),
            u32::from_be_bytes([version, flags, 0, 0]),
            self.qpn,
            self.peer_qpn,
            self.rq_psn,
            self.sq_psn.unwrap_or(0),
        ];
        let nonce = self.nonce.to_be_bytes();
        let bytes = words.iter().flat_map(|word| word.to_be_bytes());
        for (to, from) in out.iter_mut().zip(bytes.chain(nonce)) {
            *to = from;
        }
        out
    }

    /// Reads the private data of a frame; `None` if it is not a hello of this version.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let (magic, rest) = data.split_first_chunk::<5>()?;
        let (&[flags, _, _], rest) = rest.split_first_chunk::<3>()?;
        let (qpn, rest) = rest.split_first_chunk()?;
        let (peer_qpn, rest) = rest.split_first_chunk()?;
        let (rq_psn, rest) = rest.split_first_chunk()?;
        let (sq_psn, rest) = rest.split_first_chunk()?;
        let (nonce, rest) = rest.split_first_chunk()?;
        if *magic != MAGIC || !rest.is_empty() {
            return None;
        }
        Some(Self {
            qpn: u32::from_be_bytes(*qpn),
            peer_qpn: u32::from_be_bytes(*peer_qpn),
            rq_psn: u32::from_be_bytes(*rq_psn),
            sq_psn: (flags & SQ_PSN != 0).then_some(u32::from_be_bytes(*sq_psn)),
            nonce: u64::from_be_bytes(*nonce),
        })
    }

    /// Whether `self`, the hello of this end, and `peer`, the hello that it has received, fit
    /// together.
    ///
    /// At least one end must have shown a PSN that the other one expects. Nothing is sent before
    /// one of them is in `RTS`, and an end in `RTS` knows its own PSN.
    pub fn fits(&self, peer: &Self) -> Fit {
        let same = |ours: u32, theirs: u32| (ours ^ theirs) & PSN == 0;
        if self.qpn != peer.peer_qpn || self.peer_qpn != peer.qpn {
            return Fit::No;
        }
        let theirs = peer.sq_psn.map(|psn| same(self.rq_psn, psn));
        let ours = self.sq_psn.map(|psn| same(psn, peer.rq_psn));
        match (theirs, ours) {
            (Some(false), _) | (_, Some(false)) => Fit::No,
            (None, None) => Fit::Unknown,
            _ => Fit::Yes,
        }
    }
}

/// What [`Hello::fits`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// This is the peer.
    Yes,
    /// It may be the peer, but neither end is ready to send yet.
    Unknown,
    /// This is not the peer.
    No,
}
