// SPDX-License-Identifier: GPL-2.0

//! Queue pairs that are connected without a connection manager.
//!
//! Their programs have exchanged GIDs, queue pair numbers and packet sequence numbers (PSN) by
//! means of their own, and each has told its side in `modify_qp`. iWARP has no use for PSNs, but
//! they are what both ends know and nobody else does. One end connects, the other one accepts; the
//! private data of the MPA frames, a [`Hello`], says which queue pair wants which, and shows that
//! the sender knows the PSNs. It also says which [`Life`] of its device the sender is in, so that
//! [`Lives`] recognises a hello of an earlier one.

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

/// One life of a device: from its creation to its removal, or to the end of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The GUID of the device.
    pub device: u64,
    /// Chosen anew when the module is loaded.
    pub boot_id: u64,
    /// Rises from life to life.
    pub epoch: u32,
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
    /// The sender's device.
    pub life: Life,
}

/// "siwQ", and the version of what follows.
const MAGIC: [u8; 5] = *b"siwQ\x02";
/// There is a `sq_psn`.
const SQ_PSN: u8 = 1;
/// PSNs have 24 bits.
const PSN: u32 = 0x00ff_ffff;

impl Hello {
    /// Bytes of a hello: magic (4), version (1), flags (1), zero (2), then in network order `qpn`,
    /// `peer_qpn`, `rq_psn`, `sq_psn` (4 each), `nonce`, `device`, `boot_id` (8 each) and `epoch`
    /// (4).
    pub const LEN: usize = 52;

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
        let long = [self.nonce, self.life.device, self.life.boot_id];
        let bytes = words
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .chain(long.iter().flat_map(|word| word.to_be_bytes()))
            .chain(self.life.epoch.to_be_bytes());
        for (to, from) in out.iter_mut().zip(bytes) {
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
        let (device, rest) = rest.split_first_chunk()?;
        let (boot_id, rest) = rest.split_first_chunk()?;
        let (epoch, rest) = rest.split_first_chunk()?;
        if *magic != MAGIC || !rest.is_empty() {
            return None;
        }
        Some(Self {
            qpn: u32::from_be_bytes(*qpn),
            peer_qpn: u32::from_be_bytes(*peer_qpn),
            rq_psn: u32::from_be_bytes(*rq_psn),
            sq_psn: (flags & SQ_PSN != 0).then_some(u32::from_be_bytes(*sq_psn)),
            nonce: u64::from_be_bytes(*nonce),
            life: Life {
                device: u64::from_be_bytes(*device),
                boot_id: u64::from_be_bytes(*boot_id),
                epoch: u32::from_be_bytes(*epoch),
            },
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
            return Fit::Other;
        }
        let theirs = peer.sq_psn.map(|psn| same(self.rq_psn, psn));
        let ours = self.sq_psn.map(|psn| same(psn, peer.rq_psn));
        match (theirs, ours) {
            (Some(false), _) | (_, Some(false)) => Fit::Guess,
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
    /// This is another QP, or one that wants another QP. It may be anybody's on the peer's host.
    Other,
    /// The numbers are right, and a PSN is wrong. The sender may try others.
    Guess,
}

/// The last life of a device, and the boot before that.
#[derive(Clone, Copy, Debug)]
struct Known {
    host: [u8; 16],
    life: Life,
    before: Option<u64>,
}

/// The devices that this end has met, each at one address: as many as there is room for.
#[derive(Clone, Debug)]
pub struct Lives {
    known: [Option<Known>; Self::ROOM],
    next: usize,
}

impl Lives {
    /// So many devices are remembered.
    pub const ROOM: usize = 32;

    /// None is known.
    pub const fn new() -> Self {
        Self {
            known: [None; Self::ROOM],
            next: 0,
        }
    }

    fn find(&self, host: &[u8; 16], device: u64) -> Option<usize> {
        let is_it = |known: &Known| known.host == *host && known.life.device == device;
        self.known
            .iter()
            .position(|slot| slot.as_ref().is_some_and(is_it))
    }

    /// Whether the device at `host` has begun a later life.
    pub fn is_over(&self, host: &[u8; 16], life: &Life) -> bool {
        let known = self
            .find(host, life.device)
            .and_then(|at| self.known.get(at));
        match known {
            Some(Some(known)) if known.life.boot_id == life.boot_id => {
                life.epoch < known.life.epoch
            }
            Some(Some(known)) => known.before == Some(life.boot_id),
            _ => false,
        }
    }

    /// The device at `host`, which has shown that it is the peer, is in this life.
    pub fn met(&mut self, host: &[u8; 16], life: &Life) {
        let at = self.find(host, life.device);
        let slot = at.unwrap_or(self.next);
        if at.is_none() {
            self.next = self.next.wrapping_add(1) % Self::ROOM;
        }
        let Some(slot) = self.known.get_mut(slot) else {
            return;
        };
        let before = match (at, &slot) {
            (Some(_), Some(known)) if known.life.boot_id != life.boot_id => {
                Some(known.life.boot_id)
            }
            (Some(_), Some(known)) => known.before,
            _ => None,
        };
        *slot = Some(Known {
            host: *host,
            life: *life,
            before,
        });
    }
}

impl Default for Lives {
    fn default() -> Self {
        Self::new()
    }
}
