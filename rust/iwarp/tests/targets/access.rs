// SPDX-License-Identifier: GPL-2.0

//! Access checks against the list of rules, with numbers that do not overflow.

use super::Input;
use iwarp::{
    error::AccessError,
    mem::{
        access::{
            check,
            check_bind,
            check_fast_reg,
            check_invalidate,
            Access,
            Accessor,
            Bind,
            Binding,
            Consumer,
            FastReg,
            Invalidate,
            Kind,
            Need,
            PdId,
            Region,
            Rights, //
        },
        stag::Stag, //
    }, //
};

const KINDS: [Kind; 5] = [Kind::Mr, Kind::FastMr, Kind::DmaMr, Kind::Mw1, Kind::Mw2];
const NEEDS: [Need; 6] = [
    Need::LocalRead,
    Need::LocalWrite,
    Need::RemoteRead,
    Need::RemoteWrite,
    Need::Bind,
    Need::RemoteAtomic,
];

/// One of two, mostly the first: all rules are met often enough.
fn rarely<T>(input: &mut Input<'_>, normal: T, odd: T) -> T {
    if input.below(4) == 0 {
        odd
    } else {
        normal
    }
}

/// The first rule that is broken.
fn verdict<T>(value: T, rules: &[(bool, AccessError)]) -> Result<T, AccessError> {
    match rules.iter().find(|(kept, _)| !kept) {
        Some((_, error)) => Err(*error),
        None => Ok(value),
    }
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let input = &mut input;
    let stag = Stag(input.u32());
    let region = Region {
        stag,
        kind: KINDS[input.below(5)],
        valid: rarely(input, true, false),
        touched: rarely(input, false, true),
        pd: PdId(5),
        rights: Rights(u32::from(input.u8())),
        base: input.edge(),
        len: input.edge(),
        bound_qp: rarely(input, None, Some(8)),
        windows: rarely(input, 0, 3),
    };
    // In the region, at its borders, or anywhere.
    let to = match input.below(3) {
        0 => region.base.wrapping_add(input.edge()),
        1 => region
            .base
            .wrapping_add(region.len)
            .wrapping_sub(input.edge()),
        _ => input.edge(),
    };
    let len = match input.below(3) {
        0 => region.base.wrapping_add(region.len).wrapping_sub(to),
        1 => region.len,
        _ => 0,
    }
    .wrapping_add(u64::from(input.u8() % 5))
    .wrapping_sub(2);
    let other = match input.below(3) {
        0 => stag.with_key(input.u8()),
        1 => Stag(stag.0 ^ 0x100),
        _ => Stag(input.u32()),
    };
    let access = Access {
        stag: rarely(input, stag, other),
        to,
        len,
        need: NEEDS[input.below(6)],
        touch: input.flag(),
        by: Accessor {
            pd: rarely(input, region.pd, PdId((1 << 32) + 5)),
            qp: rarely(input, 8, 9),
            consumer: if input.flag() {
                Consumer::Kernel
            } else {
                Consumer::User
            },
            remote: Rights(rarely(input, u32::MAX, 0) ^ u32::from(input.u8() & 15)),
        },
    };

    let has = |bits: u32| region.rights.0 & bits != 0;
    let (start, end) = (
        u128::from(access.to),
        u128::from(access.to) + u128::from(len),
    );
    let (first, after) = (
        u128::from(region.base),
        u128::from(region.base) + u128::from(region.len),
    );
    let remote = !matches!(access.need, Need::LocalRead | Need::LocalWrite | Need::Bind);
    let window = matches!(region.kind, Kind::Mw1 | Kind::Mw2);
    let here = region.stag.0 >> 8 == access.stag.0 >> 8;
    let own_pd = (region.pd == access.by.pd, AccessError::WrongPd);
    let own_qp = (
        region.bound_qp.is_none_or(|qp| qp == access.by.qp),
        AccessError::WrongQp,
    );
    let key = (region.stag == access.stag, AccessError::WrongKey);
    let expect = verdict(
        access.to.wrapping_sub(region.base),
        &[
            (here, AccessError::UnknownStag),
            (region.valid || region.touched, AccessError::NotValid),
            (region.valid, AccessError::Spent),
            (
                if window {
                    remote
                } else {
                    region.kind != Kind::DmaMr
                        || (!remote && access.by.consumer == Consumer::Kernel)
                },
                AccessError::WrongKind,
            ),
            own_pd,
            own_qp,
            key,
            (end < 1 << 64, AccessError::Wrap),
            (first <= start && end <= after, AccessError::Bounds),
            (
                match access.need {
                    Need::LocalRead => true,
                    Need::LocalWrite => has(1 | 2),
                    Need::RemoteWrite => has(2) && access.by.remote.0 & 2 != 0,
                    Need::RemoteRead => has(4) && access.by.remote.0 & 4 != 0,
                    Need::RemoteAtomic => has(8) && access.by.remote.0 & 8 != 0,
                    Need::Bind => has(16),
                },
                AccessError::Rights,
            ),
            (!(access.touch && region.touched), AccessError::Spent),
        ],
    );
    // Of nothing, nothing may be asked (RFC 5041 7.1, RFC 5040 7.2).
    let expect = if len == 0 { Ok(0) } else { expect };
    let allowed = check(Some(&region), &access);
    assert_eq!(allowed, expect);
    // Whatever else holds: all of memory is not for programs, nor for peers.
    if len != 0 && region.kind == Kind::DmaMr && (remote || access.by.consumer == Consumer::User) {
        assert!(allowed.is_err());
    }
    let nobody = if len == 0 {
        Ok(0)
    } else {
        Err(AccessError::UnknownStag)
    };
    assert_eq!(check(None, &access), nobody);

    let by_peer = input.flag();
    let expect = verdict(
        if region.valid {
            Invalidate::Now
        } else {
            Invalidate::AlreadyFree
        },
        &[
            (here, AccessError::UnknownStag),
            (
                matches!(region.kind, Kind::FastMr | Kind::Mw2),
                AccessError::WrongKind,
            ),
            own_pd,
            own_qp,
            key,
            (region.windows == 0, AccessError::Windows),
            (
                !by_peer || !region.valid || has(2 | 4 | 8),
                AccessError::Rights,
            ),
        ],
    );
    let done = check_invalidate(Some(&region), access.stag, &access.by, by_peer);
    assert_eq!(done, expect);

    let reg = FastReg {
        stag: access.stag,
        rights: Rights(u32::from(input.u8())),
        len,
        max_len: rarely(input, region.len, len),
        pd: access.by.pd,
    };
    let expect = verdict(
        (),
        &[
            (here, AccessError::UnknownStag),
            (region.kind == Kind::FastMr, AccessError::WrongKind),
            own_pd,
            (!region.valid, AccessError::NotValid),
            (
                reg.rights.0 & (2 | 8) == 0 || reg.rights.0 & 1 != 0,
                AccessError::Rights,
            ),
            ((1..=reg.max_len).contains(&len), AccessError::Length),
        ],
    );
    assert_eq!(check_fast_reg(Some(&region), &reg), expect);

    let (kind, elsewhere) = (KINDS[input.below(5)], Stag(input.u32()));
    let mask = rarely(input, 0x2f, 0xff);
    let window = Region {
        stag: Stag(input.u32()),
        kind: rarely(input, Kind::Mw2, kind),
        valid: rarely(input, false, true),
        bound_qp: rarely(input, None, Some(8)),
        pd: rarely(input, region.pd, PdId(6)),
        ..region
    };
    let bind = Bind {
        stag: rarely(input, window.stag.with_key(7), elsewhere),
        region: access.stag,
        to,
        len,
        rights: Rights(u32::from(input.u8()) & mask),
        by: access.by,
    };
    let type_2 = window.kind == Kind::Mw2;
    let expect = verdict(
        (),
        &[
            (
                window.stag.0 >> 8 == bind.stag.0 >> 8,
                AccessError::UnknownStag,
            ),
            (type_2 || window.kind == Kind::Mw1, AccessError::WrongKind),
            (window.pd == bind.by.pd, AccessError::WrongPd),
            (
                window.bound_qp.is_none_or(|qp| qp == bind.by.qp),
                AccessError::WrongQp,
            ),
            (!type_2 || !window.valid, AccessError::NotValid),
            (!type_2 || len != 0, AccessError::Length),
        ],
    );
    let binds = Access {
        need: Need::Bind,
        touch: false,
        ..access
    };
    let expect = match expect {
        Ok(()) if len == 0 => Ok(Binding::None),
        Ok(()) => check(Some(&region), &binds).and_then(|offset| {
            let may = |asked: u32, needed: bool| bind.rights.0 & asked == 0 || needed;
            verdict(
                Binding::At(offset),
                &[
                    (region.kind == Kind::Mr, AccessError::WrongKind),
                    (
                        may(16 | 64 | 128, false)
                            && !has(32)
                            && may(32, type_2)
                            && may(2 | 8, has(1)),
                        AccessError::Rights,
                    ),
                ],
            )
        }),
        Err(error) => Err(error),
    };
    assert_eq!(check_bind(Some(&window), Some(&region), &bind), expect);
}
