// SPDX-License-Identifier: GPL-2.0

//! Access checks, which every STag goes through before a byte is touched.
//!
//! They are made for the whole of every DDP segment, and again for later chunks (RFC 5041 7.1, RFC
//! 5040 7.2 and 8.1.1). The order is fixed, so that a given mistake always gets the same answer:
//! entry exists, valid, kind, protection domain, key, bounds, rights.

use crate::{
    error::AccessError,
    mem::stag::Stag, //
};

/// Access rights, with the bit values of `enum ib_access_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rights(pub u32);

impl Rights {
    /// Local read only, which every region has.
    pub const NONE: Self = Self(0);
    /// Local write.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Remote write.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// Remote read.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// Remote atomic operations.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);
    /// Windows may be bound to the region.
    pub const MW_BIND: Self = Self(1 << 4);
    /// Offsets count from zero.
    pub const ZERO_BASED: Self = Self(1 << 5);
    /// The first message of a peer that names the entry is the last one: its end invalidates the
    /// entry. The bit is in the range that other providers ignore (`IB_ACCESS_OPTIONAL`).
    pub const ONE_TOUCH: Self = Self(1 << 29);

    /// What a bind can ask for. Local write means nothing for a window, but programs add it to
    /// remote write as they do for regions.
    pub const OF_WINDOW: Self = Self::LOCAL_WRITE
        .union(Self::REMOTE_WRITE)
        .union(Self::REMOTE_READ)
        .union(Self::REMOTE_ATOMIC)
        .union(Self::ZERO_BASED)
        .union(Self::ONE_TOUCH);

    /// Whether all of `other` is there.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is there.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets together.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Remote write and remote atomics are only given with local write, as the core demands of user
    /// regions.
    pub const fn is_consistent(self) -> bool {
        !self.intersects(Self::REMOTE_WRITE.union(Self::REMOTE_ATOMIC))
            || self.contains(Self::LOCAL_WRITE)
    }
}

/// What kind of table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Region of a user.
    Mr,
    /// Region registered by work requests.
    FastMr,
    /// All of memory, for the kernel's own use.
    DmaMr,
    /// Window of type 1, scoped to its PD.
    Mw1,
    /// Window of type 2B, scoped to a QP.
    Mw2,
}

impl Kind {
    /// Whether the entry is a window.
    pub const fn is_window(self) -> bool {
        matches!(self, Self::Mw1 | Self::Mw2)
    }
}

/// Identity of a protection domain; compared, never looked up.
///
/// A count of all domains so far. It has 64 bits and never wraps, so no two domains have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PdId(pub u64);

/// Whose QP it is that makes an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumer {
    /// A program's: it may use what it has registered.
    User,
    /// A kernel consumer's, which answers for the addresses it uses.
    Kernel,
}

/// A table entry as the checks see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The whole tag, current key included.
    pub stag: Stag,
    /// Kind of entry.
    pub kind: Kind,
    /// Registered or bound, and not invalidated since.
    pub valid: bool,
    /// A one-touch entry that has admitted its message. Stays set when that message has made the
    /// entry invalid.
    pub touched: bool,
    /// Owner.
    pub pd: PdId,
    /// Granted rights.
    pub rights: Rights,
    /// Tagged offset of the first byte; 0 if zero based.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
    /// The only QP that may use it, for a window of type 2.
    pub bound_qp: Option<u32>,
    /// Windows bound to this region.
    pub windows: u32,
}

impl Region {
    /// Why an entry that is not valid refuses.
    pub const fn gone(&self) -> AccessError {
        if self.touched {
            AccessError::Spent
        } else {
            AccessError::NotValid
        }
    }
}

/// The right an access needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Source of a Send or Write.
    LocalRead,
    /// Receive buffer, or sink of a Read; remote write implies it.
    LocalWrite,
    /// Source of the peer's Read.
    RemoteRead,
    /// Target of the peer's Write.
    RemoteWrite,
    /// Target of the peer's Atomic Request.
    RemoteAtomic,
    /// A window is bound to it.
    Bind,
}

/// The queue pair that makes an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessor {
    /// PD of the QP, or of the SRQ the receive buffer came from.
    pub pd: PdId,
    /// Number of the QP.
    pub qp: u32,
    /// Owner of the QP.
    pub consumer: Consumer,
    /// What the QP lets its peer do, whatever memory it is. Of no effect on an access of its own.
    pub remote: Rights,
}

/// An access to be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The tag that was given.
    pub stag: Stag,
    /// Tagged offset or address of the first byte.
    pub to: u64,
    /// Length in bytes.
    pub len: u64,
    /// The right it takes.
    pub need: Need,
    /// It is the last part of a message of the peer. A one-touch entry admits one such access.
    pub touch: bool,
    /// The queue pair.
    pub by: Accessor,
}

/// Checks an access and returns its offset from the start of the region.
///
/// `region` is the entry at the index of the tag, if there is one. An access of length 0 is always
/// allowed, whatever its tag (RFC 5041 7.1 and RFC 5040 7.2 forbid the check): it yields offset 0,
/// and the caller need not look the entry up.
#[inline(always)]
pub fn check(region: Option<&Region>, access: &Access) -> Result<u64, AccessError> {
    if access.len == 0 {
        return Ok(0);
    }
    let region = region.ok_or(AccessError::UnknownStag)?;
    if region.stag.index() != access.stag.index() {
        return Err(AccessError::UnknownStag);
    }
    if !region.valid {
        return Err(region.gone());
    }
    let remote = matches!(
        access.need,
        Need::RemoteRead | Need::RemoteWrite | Need::RemoteAtomic
    );
    let fits = match region.kind {
        Kind::Mr | Kind::FastMr => true,
        // Only kernel consumers use it, under any PD. Peers and programs never do.
        Kind::DmaMr => !remote && access.by.consumer == Consumer::Kernel,
        // Windows are for peers.
        Kind::Mw1 | Kind::Mw2 => remote,
    };
    if !fits {
        return Err(AccessError::WrongKind);
    }
    check_owner(region, &access.by)?;
    if region.stag != access.stag {
        return Err(AccessError::WrongKey);
    }
    let end = access.to.checked_add(access.len).ok_or(AccessError::Wrap)?;
    let offset = access
        .to
        .checked_sub(region.base)
        .ok_or(AccessError::Bounds)?;
    match end.checked_sub(region.base) {
        Some(offset_end) if offset_end <= region.len => {}
        _ => return Err(AccessError::Bounds),
    }
    let both = region.rights.intersection(access.by.remote);
    let granted = match access.need {
        Need::LocalRead => true,
        Need::LocalWrite => region
            .rights
            .intersects(Rights::LOCAL_WRITE.union(Rights::REMOTE_WRITE)),
        Need::RemoteRead => both.contains(Rights::REMOTE_READ),
        Need::RemoteWrite => both.contains(Rights::REMOTE_WRITE),
        Need::RemoteAtomic => both.contains(Rights::REMOTE_ATOMIC),
        Need::Bind => region.rights.contains(Rights::MW_BIND),
    };
    if !granted {
        return Err(AccessError::Rights);
    }
    if access.touch && region.touched {
        return Err(AccessError::Spent);
    }
    Ok(offset)
}

fn check_owner(region: &Region, by: &Accessor) -> Result<(), AccessError> {
    if region.pd != by.pd {
        return Err(AccessError::WrongPd);
    }
    match region.bound_qp {
        Some(bound) if bound != by.qp => Err(AccessError::WrongQp),
        _ => Ok(()),
    }
}

/// What an allowed invalidation has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidate {
    /// Make the entry invalid.
    Now,
    /// Nothing, it already is.
    AlreadyFree,
}

/// Checks a Local Invalidate, or with `remote` a Send with Invalidate of the peer (RFC 5040 5.3 and
/// 8.1.1).
///
/// Fast-register regions without windows and windows of type 2 can be invalidated; the peer must
/// also have had a right to lose.
pub fn check_invalidate(
    region: Option<&Region>,
    stag: Stag,
    by: &Accessor,
    remote: bool,
) -> Result<Invalidate, AccessError> {
    let region = region.ok_or(AccessError::UnknownStag)?;
    if region.stag.index() != stag.index() {
        return Err(AccessError::UnknownStag);
    }
    if !matches!(region.kind, Kind::FastMr | Kind::Mw2) {
        return Err(AccessError::WrongKind);
    }
    check_owner(region, by)?;
    if region.stag != stag {
        return Err(AccessError::WrongKey);
    }
    if region.windows != 0 {
        return Err(AccessError::Windows);
    }
    if !region.valid {
        return Ok(Invalidate::AlreadyFree);
    }
    let remote_rights = Rights::REMOTE_READ
        .union(Rights::REMOTE_WRITE)
        .union(Rights::REMOTE_ATOMIC);
    if remote && !region.rights.intersects(remote_rights) {
        return Err(AccessError::Rights);
    }
    Ok(Invalidate::Now)
}

/// A fast registration (`IB_WR_REG_MR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastReg {
    /// Index of the entry and its new key.
    pub stag: Stag,
    /// Rights the entry will have.
    pub rights: Rights,
    /// Length of the mapped list in bytes.
    pub len: u64,
    /// Length reserved when the region was allocated.
    pub max_len: u64,
    /// PD of the QP.
    pub pd: PdId,
}

/// Checks a fast registration. The key is the new one, so it is not compared.
pub fn check_fast_reg(region: Option<&Region>, reg: &FastReg) -> Result<(), AccessError> {
    let region = region.ok_or(AccessError::UnknownStag)?;
    if region.stag.index() != reg.stag.index() {
        return Err(AccessError::UnknownStag);
    }
    if region.kind != Kind::FastMr {
        return Err(AccessError::WrongKind);
    }
    if region.pd != reg.pd {
        return Err(AccessError::WrongPd);
    }
    if region.valid {
        return Err(AccessError::NotValid);
    }
    if !reg.rights.is_consistent() {
        return Err(AccessError::Rights);
    }
    if reg.len == 0 || reg.len > reg.max_len {
        return Err(AccessError::Length);
    }
    Ok(())
}

/// A bind of a window (`IBV_WR_BIND_MW`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The tag that the window will have: its index, and any key.
    pub stag: Stag,
    /// The tag of the region.
    pub region: Stag,
    /// Address of the first byte in the region.
    pub to: u64,
    /// Length in bytes. 0 unbinds a window of type 1.
    pub len: u64,
    /// Rights of the window.
    pub rights: Rights,
    /// The queue pair that binds.
    pub by: Accessor,
}

impl Bind {
    /// The use of the region.
    pub const fn access(&self) -> Access {
        Access {
            stag: self.region,
            to: self.to,
            len: self.len,
            need: Need::Bind,
            touch: false,
            by: self.by,
        }
    }
}

/// What an allowed bind has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Unbind the window.
    None,
    /// Bind it to the memory at this offset from the start of the region.
    At(u64),
}

/// Checks a bind. `window` and `region` are the entries at the indexes of the tags.
///
/// A window of type 1 may be bound already; one of type 2 must not be. Its key so far is not asked
/// for: nobody but its owner can name the window, and verbs do not tell a program the key after
/// each bind. The region must be a program's, of the same protection domain as the window and the
/// queue pair.
pub fn check_bind(
    window: Option<&Region>,
    region: Option<&Region>,
    bind: &Bind,
) -> Result<Binding, AccessError> {
    let window = window.ok_or(AccessError::UnknownStag)?;
    if window.stag.index() != bind.stag.index() {
        return Err(AccessError::UnknownStag);
    }
    if !window.kind.is_window() {
        return Err(AccessError::WrongKind);
    }
    check_owner(window, &bind.by)?;
    let type_2 = matches!(window.kind, Kind::Mw2);
    if type_2 && window.valid {
        return Err(AccessError::NotValid);
    }
    if bind.len == 0 {
        return if type_2 {
            Err(AccessError::Length)
        } else {
            Ok(Binding::None)
        };
    }
    let offset = check(region, &bind.access())?;
    let region = region.ok_or(AccessError::UnknownStag)?;
    if !matches!(region.kind, Kind::Mr) {
        return Err(AccessError::WrongKind);
    }
    let changes = bind
        .rights
        .intersects(Rights::REMOTE_WRITE.union(Rights::REMOTE_ATOMIC));
    if !Rights::OF_WINDOW.contains(bind.rights)
        || region.rights.contains(Rights::ZERO_BASED)
        || (!type_2 && bind.rights.contains(Rights::ZERO_BASED))
        || (changes && !region.rights.contains(Rights::LOCAL_WRITE))
    {
        return Err(AccessError::Rights);
    }
    Ok(Binding::At(offset))
}
