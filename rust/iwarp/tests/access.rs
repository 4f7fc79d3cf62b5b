// SPDX-License-Identifier: GPL-2.0

//! The access checks: every rule alone, the order among them, and the edges.

mod common;

use common::{
    region,
    Rng,
    BASE,
    PD,
    QP, //
};
use iwarp::{
    error::{
        AccessError,
        AccessOp,
        Error, //
    },
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
        atomic::AtomicOp,
        stag::Stag, //
    },
    verdict::{
        Fault,
        QpEvent,
        WcStatus, //
    },
    wire::terminate::TermCode, //
};

const LEN: u64 = 0x1000;
const PROGRAM: Accessor = Accessor {
    pd: PD,
    qp: QP,
    consumer: Consumer::User,
    remote: Rights(u32::MAX),
};
const NEEDS: [Need; 6] = [
    Need::LocalRead,
    Need::LocalWrite,
    Need::RemoteRead,
    Need::RemoteWrite,
    Need::RemoteAtomic,
    Need::Bind,
];

fn good() -> Region {
    region(LEN)
}

fn access(to: u64, len: u64, need: Need) -> Access {
    Access {
        stag: good().stag,
        to,
        len,
        need,
        touch: false,
        by: PROGRAM,
    }
}

fn by_kernel(to: u64, len: u64, need: Need) -> Access {
    Access {
        by: Accessor {
            consumer: Consumer::Kernel,
            ..PROGRAM
        },
        ..access(to, len, need)
    }
}

fn write(to: u64, len: u64) -> Result<u64, AccessError> {
    check(Some(&good()), &access(to, len, Need::RemoteWrite))
}

#[test]
fn bounds_to_the_byte() {
    assert_eq!(write(BASE, LEN), Ok(0));
    assert_eq!(write(BASE + LEN - 1, 1), Ok(LEN - 1));
    assert_eq!(write(BASE, LEN + 1), Err(AccessError::Bounds));
    assert_eq!(write(BASE + 1, LEN), Err(AccessError::Bounds));
    assert_eq!(write(BASE - 1, 1), Err(AccessError::Bounds));
    assert_eq!(write(BASE - 1, 2), Err(AccessError::Bounds));
    assert_eq!(write(BASE + LEN, 1), Err(AccessError::Bounds));
    assert_eq!(write(0, 1), Err(AccessError::Bounds));
    assert_eq!(write(u64::MAX, 1), Err(AccessError::Wrap));
    assert_eq!(write(u64::MAX - 7, 8), Err(AccessError::Wrap));
    assert_eq!(write(u64::MAX - 8, 8), Err(AccessError::Bounds));
    assert_eq!(write(BASE, u64::MAX), Err(AccessError::Wrap));
    // All of memory, and a region at its very end.
    let dma = Region {
        kind: Kind::DmaMr,
        base: 0,
        len: u64::MAX,
        ..good()
    };
    let local =
        |region: &Region, to, len| check(Some(region), &by_kernel(to, len, Need::LocalWrite));
    assert_eq!(local(&dma, u64::MAX - 9, 9), Ok(u64::MAX - 9));
    assert_eq!(local(&dma, u64::MAX - 9, 10), Err(AccessError::Wrap));
    let last = Region {
        base: u64::MAX - 10,
        len: 10,
        ..good()
    };
    assert_eq!(local(&last, u64::MAX - 10, 10), Ok(0));
    assert_eq!(local(&last, u64::MAX - 5, 6), Err(AccessError::Wrap));
}

/// Against the obvious arithmetic in 128 bits.
#[test]
fn bounds_at_random() {
    let mut rng = Rng::new(3);
    let edge = |rng: &mut Rng| match rng.below(4) {
        0 => rng.below(20),
        1 => u64::MAX - rng.below(20),
        2 => BASE + rng.below(40),
        _ => rng.next(),
    };
    for _ in 0..200_000 {
        let region = Region {
            base: edge(&mut rng),
            len: edge(&mut rng),
            ..good()
        };
        let (to, len) = (edge(&mut rng), edge(&mut rng));
        let got = check(Some(&region), &access(to, len, Need::LocalRead));
        let (b, l, t, n) = (
            u128::from(region.base),
            u128::from(region.len),
            u128::from(to),
            u128::from(len),
        );
        let expected = if len == 0 {
            Ok(0)
        } else if t + n > u128::from(u64::MAX) {
            Err(AccessError::Wrap)
        } else if t < b || t + n > b + l {
            Err(AccessError::Bounds)
        } else {
            Ok(to - region.base)
        };
        assert_eq!(got, expected, "{region:?} {to:#x} {len:#x}");
    }
}

#[test]
fn nothing_is_checked_for_length_zero() {
    let mut a = access(u64::MAX, 0, Need::RemoteWrite);
    a.stag = Stag(0);
    a.by.pd = PdId(99);
    assert_eq!(check(None, &a), Ok(0));
    let dead = Region {
        valid: false,
        ..good()
    };
    assert_eq!(check(Some(&dead), &a), Ok(0));
}

#[test]
fn rules_and_their_order() {
    // Each breaks a rule and those after it: the first counts.
    let a = |to: u64| access(to, 8, Need::RemoteWrite);
    let mut region = good();
    let mut bad = a(u64::MAX);
    region.rights = Rights::NONE;
    assert_eq!(check(Some(&region), &a(BASE)), Err(AccessError::Rights));
    assert_eq!(
        check(Some(&region), &a(BASE + LEN)),
        Err(AccessError::Bounds)
    );
    assert_eq!(check(Some(&region), &bad), Err(AccessError::Wrap));
    bad.stag = good().stag.with_key(0x57);
    assert_eq!(check(Some(&region), &bad), Err(AccessError::WrongKey));
    region.bound_qp = Some(QP + 1);
    assert_eq!(check(Some(&region), &bad), Err(AccessError::WrongQp));
    region.pd = PdId(8);
    assert_eq!(check(Some(&region), &bad), Err(AccessError::WrongPd));
    region.kind = Kind::DmaMr;
    assert_eq!(check(Some(&region), &bad), Err(AccessError::WrongKind));
    region.valid = false;
    assert_eq!(check(Some(&region), &bad), Err(AccessError::NotValid));
    bad.stag = Stag::new(0x1235, 0x56).unwrap();
    assert_eq!(check(Some(&region), &bad), Err(AccessError::UnknownStag));
    assert_eq!(check(None, &bad), Err(AccessError::UnknownStag));
}

#[test]
fn rights() {
    for bits in 0..64 {
        let region = Region {
            rights: Rights(bits),
            ..good()
        };
        for need in NEEDS {
            let allowed = match need {
                Need::LocalRead => true,
                Need::LocalWrite => bits & 3 != 0,
                Need::RemoteWrite => bits & 2 != 0,
                Need::RemoteRead => bits & 4 != 0,
                Need::RemoteAtomic => bits & 8 != 0,
                Need::Bind => bits & 16 != 0,
            };
            let got = check(Some(&region), &access(BASE, 8, need));
            let expected = if allowed {
                Ok(0)
            } else {
                Err(AccessError::Rights)
            };
            assert_eq!(got, expected, "{bits:#x} {need:?}");
        }
    }
}

/// A right that the QP does not grant its peer is refused like one that the region does not grant.
/// It does not restrict the owner of the QP.
#[test]
fn rights_of_the_queue_pair() {
    let region = Region {
        rights: Rights(0x3f),
        ..good()
    };
    for bits in 0..64 {
        for need in NEEDS {
            let allowed = match need {
                Need::LocalRead | Need::LocalWrite | Need::Bind => true,
                Need::RemoteWrite => bits & 2 != 0,
                Need::RemoteRead => bits & 4 != 0,
                Need::RemoteAtomic => bits & 8 != 0,
            };
            let asked = Access {
                by: Accessor {
                    remote: Rights(bits),
                    ..PROGRAM
                },
                ..access(BASE, 8, need)
            };
            let expected = if allowed {
                Ok(0)
            } else {
                Err(AccessError::Rights)
            };
            assert_eq!(check(Some(&region), &asked), expected, "{bits:#x} {need:?}");
        }
    }
}

#[test]
fn kinds() {
    for kind in [Kind::Mr, Kind::FastMr, Kind::DmaMr, Kind::Mw1, Kind::Mw2] {
        let region = Region {
            kind,
            rights: Rights(0x3f),
            bound_qp: (kind == Kind::Mw2).then_some(QP),
            ..good()
        };
        for need in NEEDS {
            let remote = !matches!(need, Need::LocalRead | Need::LocalWrite | Need::Bind);
            let allowed = match kind {
                Kind::Mr | Kind::FastMr => true,
                Kind::DmaMr => !remote,
                Kind::Mw1 | Kind::Mw2 => remote,
            };
            let got = check(Some(&region), &by_kernel(BASE, 8, need));
            assert_eq!(got.is_ok(), allowed, "{kind:?} {need:?}");
        }
    }
}

/// A program that obtained the kernel's PD could still not name all of memory.
#[test]
fn all_of_memory_is_not_for_programs() {
    let dma = Region {
        kind: Kind::DmaMr,
        base: 0,
        len: u64::MAX,
        rights: Rights(u32::MAX),
        ..good()
    };
    for need in NEEDS {
        let got = check(Some(&dma), &access(BASE, 8, need));
        assert_eq!(got, Err(AccessError::WrongKind), "{need:?}");
    }
}

/// Two domains whose numbers differ by 2^32 are two.
#[test]
fn domains_do_not_come_round() {
    let other = Access {
        by: Accessor {
            pd: PdId(PD.0 + (1 << 32)),
            ..PROGRAM
        },
        ..access(BASE, 8, Need::LocalRead)
    };
    assert_eq!(check(Some(&good()), &other), Err(AccessError::WrongPd));
}

#[test]
fn invalidation() {
    let ask =
        |region: &Region, remote| check_invalidate(Some(region), good().stag, &PROGRAM, remote);
    let fast = Region {
        kind: Kind::FastMr,
        ..good()
    };
    assert_eq!(ask(&fast, true), Ok(Invalidate::Now));
    for kind in [Kind::Mr, Kind::DmaMr, Kind::Mw1] {
        let region = Region { kind, ..good() };
        assert_eq!(ask(&region, true), Err(AccessError::WrongKind));
        assert_eq!(ask(&region, false), Err(AccessError::WrongKind));
    }
    let window = Region {
        kind: Kind::Mw2,
        bound_qp: Some(QP),
        ..good()
    };
    assert_eq!(ask(&window, true), Ok(Invalidate::Now));
    let other = Region {
        bound_qp: Some(1),
        ..window
    };
    assert_eq!(ask(&other, true), Err(AccessError::WrongQp));
    let bound = Region { windows: 1, ..fast };
    assert_eq!(ask(&bound, false), Err(AccessError::Windows));
    // Any right of the peer will do.
    for right in [
        Rights::REMOTE_READ,
        Rights::REMOTE_WRITE,
        Rights::REMOTE_ATOMIC,
    ] {
        let region = Region {
            rights: right,
            ..fast
        };
        assert_eq!(ask(&region, true), Ok(Invalidate::Now));
    }
    let local = Region {
        rights: Rights::LOCAL_WRITE,
        ..fast
    };
    assert_eq!(ask(&local, true), Err(AccessError::Rights));
    assert_eq!(ask(&local, false), Ok(Invalidate::Now));
    let free = Region {
        valid: false,
        ..fast
    };
    assert_eq!(ask(&free, true), Ok(Invalidate::AlreadyFree));
    let stale = check_invalidate(Some(&fast), good().stag.with_key(0), &PROGRAM, true);
    assert_eq!(stale, Err(AccessError::WrongKey));
    let other = Accessor {
        pd: PdId(0),
        ..PROGRAM
    };
    let foreign = check_invalidate(Some(&fast), good().stag, &other, true);
    assert_eq!(foreign, Err(AccessError::WrongPd));
    assert_eq!(
        check_invalidate(None, good().stag, &PROGRAM, true),
        Err(AccessError::UnknownStag)
    );
}

/// An atomic operation has eight bytes, all of them inside, and the right to it is not that to
/// write.
#[test]
fn atomic_operations() {
    let all = Rights(0x3f);
    let region = Region {
        rights: all,
        ..good()
    };
    let ask = |region: &Region, to| {
        let len = u64::from(AtomicOp::LEN);
        check(Some(region), &access(to, len, Need::RemoteAtomic))
    };
    assert_eq!(ask(&region, BASE), Ok(0));
    assert_eq!(ask(&region, BASE + LEN - 8), Ok(LEN - 8));
    for to in [BASE - 1, BASE + LEN - 7, BASE + LEN] {
        assert_eq!(ask(&region, to), Err(AccessError::Bounds));
    }
    assert_eq!(ask(&region, u64::MAX - 7), Err(AccessError::Wrap));
    let others = Region {
        rights: Rights(all.0 & !Rights::REMOTE_ATOMIC.0),
        ..region
    };
    assert_eq!(ask(&others, BASE), Err(AccessError::Rights));
    // A window of type 2 that has the right has it for its queue pair.
    let window = Region {
        kind: Kind::Mw2,
        bound_qp: Some(QP),
        rights: Rights::REMOTE_ATOMIC,
        ..region
    };
    assert_eq!(ask(&window, BASE), Ok(0));
    let other = Region {
        bound_qp: Some(QP + 1),
        ..window
    };
    assert_eq!(ask(&other, BASE), Err(AccessError::WrongQp));
    // One of type 1 has it for its protection domain.
    let window = Region {
        kind: Kind::Mw1,
        bound_qp: None,
        ..window
    };
    assert_eq!(ask(&window, BASE), Ok(0));
    let other = Region {
        pd: PdId(PD.0 + 1),
        ..window
    };
    assert_eq!(ask(&other, BASE), Err(AccessError::WrongPd));
    let gone = Region {
        valid: false,
        ..window
    };
    assert_eq!(ask(&gone, BASE), Err(AccessError::NotValid));
    // The misalignment of a target is no matter of access.
    let code = Error::Unaligned.terminate();
    assert_eq!(code, Some(TermCode::new(0, 2, 7)));
    assert_eq!(Error::Unaligned.qp_event(), QpEvent::ReqErr);
}

/// A one-touch entry admits one access that touches, in addition to any that do not.
#[test]
fn touches() {
    let fresh = Region {
        rights: Rights(0x3f).union(Rights::ONE_TOUCH),
        ..good()
    };
    let touched = Region {
        touched: true,
        ..fresh
    };
    let spent = Region {
        valid: false,
        ..touched
    };
    for need in NEEDS {
        let part = access(BASE, 8, need);
        let end = Access {
            touch: true,
            ..part
        };
        assert_eq!(check(Some(&fresh), &part), Ok(0));
        assert_eq!(check(Some(&fresh), &end), Ok(0));
        assert_eq!(check(Some(&touched), &part), Ok(0));
        assert_eq!(check(Some(&touched), &end), Err(AccessError::Spent));
        assert_eq!(check(Some(&spent), &part), Err(AccessError::Spent));
        // What is wrong otherwise comes first.
        let wrong = Access {
            to: BASE + LEN,
            ..end
        };
        assert_eq!(check(Some(&touched), &wrong), Err(AccessError::Bounds));
    }
}

const WINDOW: Region = Region {
    stag: Stag(0x4321_00),
    kind: Kind::Mw2,
    valid: false,
    touched: false,
    pd: PD,
    rights: Rights::NONE,
    base: 0,
    len: 0,
    bound_qp: None,
    windows: 0,
};

fn bindable() -> Region {
    Region {
        rights: Rights::LOCAL_WRITE.union(Rights::MW_BIND),
        ..good()
    }
}

fn bind() -> Bind {
    Bind {
        stag: WINDOW.stag.with_key(9),
        region: good().stag,
        to: BASE + 0x100,
        len: 0x200,
        rights: Rights::REMOTE_WRITE,
        by: PROGRAM,
    }
}

#[test]
fn binding() {
    let ask = |window: Region, region: Region, bind: Bind| {
        check_bind(Some(&window), Some(&region), &bind)
    };
    let type_1 = Region {
        kind: Kind::Mw1,
        ..WINDOW
    };
    let bound = Ok(Binding::At(0x100));
    assert_eq!(ask(WINDOW, bindable(), bind()), bound);
    assert_eq!(ask(type_1, bindable(), bind()), bound);
    // Up to the borders of the region, and no further.
    let all = Bind {
        to: BASE,
        len: LEN,
        ..bind()
    };
    assert_eq!(ask(WINDOW, bindable(), all), Ok(Binding::At(0)));
    let long = Bind {
        len: LEN + 1,
        ..all
    };
    assert_eq!(ask(WINDOW, bindable(), long), Err(AccessError::Bounds));
    let wrap = Bind {
        len: u64::MAX,
        ..all
    };
    assert_eq!(ask(WINDOW, bindable(), wrap), Err(AccessError::Wrap));
    // Bound already.
    let busy = |window| Region {
        valid: true,
        ..window
    };
    assert_eq!(ask(busy(type_1), bindable(), bind()), bound);
    let again = ask(busy(WINDOW), bindable(), bind());
    assert_eq!(again, Err(AccessError::NotValid));
    // A length of 0 unbinds what can be unbound so.
    let nothing = Bind { len: 0, ..bind() };
    assert_eq!(check_bind(Some(&type_1), None, &nothing), Ok(Binding::None));
    let unbound = check_bind(Some(&WINDOW), None, &nothing);
    assert_eq!(unbound, Err(AccessError::Length));
}

#[test]
fn binding_rules_and_their_order() {
    // Each breaks a rule and those after it: the first counts.
    let (mut window, mut region, mut wrong) = (WINDOW, bindable(), bind());
    let ask = |window: &Region, region: &Region, bind: &Bind, error| {
        let got = check_bind(Some(window), Some(region), bind);
        assert_eq!(got, Err(error), "{window:?} {region:?} {bind:?}");
    };
    region.rights = Rights::MW_BIND;
    ask(&window, &region, &wrong, AccessError::Rights);
    region.kind = Kind::FastMr;
    ask(&window, &region, &wrong, AccessError::WrongKind);
    region.rights = Rights::LOCAL_WRITE;
    ask(&window, &region, &wrong, AccessError::Rights);
    wrong.to = BASE + LEN;
    ask(&window, &region, &wrong, AccessError::Bounds);
    wrong.region = good().stag.with_key(1);
    ask(&window, &region, &wrong, AccessError::WrongKey);
    region.pd = PdId(8);
    ask(&window, &region, &wrong, AccessError::WrongPd);
    region.kind = Kind::DmaMr;
    ask(&window, &region, &wrong, AccessError::WrongKind);
    region.valid = false;
    ask(&window, &region, &wrong, AccessError::NotValid);
    wrong.region = Stag(0x9999_00);
    ask(&window, &region, &wrong, AccessError::UnknownStag);
    wrong.len = 0;
    ask(&window, &region, &wrong, AccessError::Length);
    window.valid = true;
    ask(&window, &region, &wrong, AccessError::NotValid);
    window.bound_qp = Some(QP + 1);
    ask(&window, &region, &wrong, AccessError::WrongQp);
    window.pd = PdId(8);
    ask(&window, &region, &wrong, AccessError::WrongPd);
    window.kind = Kind::Mr;
    ask(&window, &region, &wrong, AccessError::WrongKind);
    wrong.stag = Stag(0x9999_01);
    ask(&window, &region, &wrong, AccessError::UnknownStag);
}

/// A window has rights of peers only, and none to change what the owner may not change.
#[test]
fn rights_of_windows() {
    for bits in (0..64).flat_map(|bits| [bits, bits | Rights::ONE_TOUCH.0]) {
        for kind in [Kind::Mw1, Kind::Mw2] {
            for may_write in [false, true] {
                let window = Region { kind, ..WINDOW };
                let region = Region {
                    rights: Rights(16 + u32::from(may_write)),
                    ..good()
                };
                let asked = Bind {
                    rights: Rights(bits),
                    ..bind()
                };
                let allowed = bits & 16 == 0
                    && (may_write || bits & (2 | 8) == 0)
                    && (kind == Kind::Mw2 || bits & 32 == 0);
                let got = check_bind(Some(&window), Some(&region), &asked);
                assert_eq!(got.is_ok(), allowed, "{bits:#x} {kind:?} {may_write}");
            }
        }
    }
    let zero_based = Region {
        rights: bindable().rights.union(Rights::ZERO_BASED),
        ..good()
    };
    let got = check_bind(Some(&WINDOW), Some(&zero_based), &bind());
    assert_eq!(got, Err(AccessError::Rights));
}

#[test]
fn registration() {
    let free = Region {
        kind: Kind::FastMr,
        valid: false,
        ..good()
    };
    let reg = FastReg {
        stag: good().stag.with_key(0x99),
        rights: Rights::LOCAL_WRITE.union(Rights::REMOTE_WRITE),
        len: LEN,
        max_len: LEN,
        pd: PD,
    };
    let ask = |region: &Region, reg: &FastReg| check_fast_reg(Some(region), reg);
    assert_eq!(ask(&free, &reg), Ok(()));
    let busy = Region {
        valid: true,
        ..free
    };
    assert_eq!(ask(&busy, &reg), Err(AccessError::NotValid));
    for kind in [Kind::Mr, Kind::DmaMr, Kind::Mw1, Kind::Mw2] {
        assert_eq!(
            ask(&Region { kind, ..free }, &reg),
            Err(AccessError::WrongKind)
        );
    }
    for (reg, error) in [
        (FastReg { pd: PdId(1), ..reg }, AccessError::WrongPd),
        (FastReg { len: 0, ..reg }, AccessError::Length),
        (
            FastReg {
                len: LEN + 1,
                ..reg
            },
            AccessError::Length,
        ),
        (
            FastReg {
                rights: Rights::REMOTE_WRITE,
                ..reg
            },
            AccessError::Rights,
        ),
        (
            FastReg {
                rights: Rights::REMOTE_ATOMIC,
                ..reg
            },
            AccessError::Rights,
        ),
        (
            FastReg {
                stag: Stag(0x7_7700),
                ..reg
            },
            AccessError::UnknownStag,
        ),
    ] {
        assert_eq!(ask(&free, &reg), Err(error));
    }
    assert_eq!(check_fast_reg(None, &reg), Err(AccessError::UnknownStag));
}

/// The code, status and event each broken rule leads to.
#[test]
fn codes() {
    use AccessError::*;
    use AccessOp as Op;
    let code = |error: AccessError, op| {
        let code = error.during(op).terminate().unwrap();
        assert!(code.is_known());
        (code.layer, code.etype, code.ecode)
    };
    for op in [Op::Write, Op::ReadResponse] {
        for error in [UnknownStag, NotValid, WrongKey, WrongKind] {
            assert_eq!(code(error, op), (1, 1, 0));
        }
        assert_eq!(code(WrongPd, op), (1, 1, 2));
        assert_eq!(code(WrongQp, op), (1, 1, 2));
        assert_eq!(code(Bounds, op), (1, 1, 1));
        assert_eq!(code(Wrap, op), (1, 1, 3));
        assert_eq!(code(Rights, op), (0, 1, 2));
    }
    // RDMAP looks after both (RFC 5040 7.2, RFC 7306 5.2.1).
    for op in [Op::ReadRequest, Op::AtomicRequest] {
        for error in [UnknownStag, NotValid, WrongKey, WrongKind, Spent] {
            assert_eq!(code(error, op), (0, 1, 0));
        }
        assert_eq!(code(Bounds, op), (0, 1, 1));
        assert_eq!(code(Rights, op), (0, 1, 2));
        assert_eq!(code(WrongPd, op), (0, 1, 3));
        assert_eq!(code(WrongQp, op), (0, 1, 3));
        assert_eq!(code(Wrap, op), (0, 1, 4));
    }
    for error in [UnknownStag, WrongKey, WrongKind, Windows] {
        assert_eq!(code(error, Op::Invalidate), (0, 2, 9));
    }
    assert_eq!(code(WrongPd, Op::Invalidate), (0, 1, 9));
    assert_eq!(code(WrongQp, Op::Invalidate), (0, 1, 9));
    assert_eq!(code(Rights, Op::Invalidate), (0, 1, 2));
    let all = [
        UnknownStag,
        NotValid,
        WrongKind,
        WrongPd,
        WrongQp,
        WrongKey,
        Bounds,
        Wrap,
        Rights,
        Windows,
        Length,
    ];
    for error in all {
        assert_eq!(code(error, Op::Recv), (1, 0, 0));
        for op in [Op::Send, Op::LocalInvalidate, Op::Register, Op::Bind] {
            assert_eq!(code(error, op), (0, 0, 0));
        }
        for (op, status, event) in [
            (Op::Send, WcStatus::LocProtErr, QpEvent::Fatal),
            (Op::Recv, WcStatus::LocProtErr, QpEvent::AccessErr),
            (Op::Write, WcStatus::GeneralErr, QpEvent::AccessErr),
            (Op::ReadResponse, WcStatus::LocProtErr, QpEvent::AccessErr),
            (Op::ReadRequest, WcStatus::GeneralErr, QpEvent::AccessErr),
            (Op::AtomicRequest, WcStatus::GeneralErr, QpEvent::AccessErr),
            (Op::Invalidate, WcStatus::RemInvReqErr, QpEvent::ReqErr),
            (Op::LocalInvalidate, WcStatus::LocQpOpErr, QpEvent::Fatal),
            (Op::Register, WcStatus::LocQpOpErr, QpEvent::Fatal),
            (Op::Bind, WcStatus::MwBindErr, QpEvent::Fatal),
        ] {
            assert_eq!(error.during(op).wc_status(), status);
            assert_eq!(error.during(op).qp_event(), event);
            let by_peer = matches!(
                op,
                Op::Write | Op::ReadRequest | Op::AtomicRequest | Op::Invalidate
            );
            let fault = if by_peer { Fault::Remote } else { Fault::Local };
            assert_eq!(error.during(op).fault(), fault);
        }
    }
}

#[test]
fn what_is_not_there_yet_is_no_error() {
    for op in [
        AccessOp::Send,
        AccessOp::Recv,
        AccessOp::Write,
        AccessOp::ReadResponse,
        AccessOp::ReadRequest,
        AccessOp::AtomicRequest,
        AccessOp::Invalidate,
        AccessOp::LocalInvalidate,
        AccessOp::Register,
        AccessOp::Bind,
    ] {
        let pending = AccessError::Pending.during(op);
        assert!(pending.is_pending());
        assert_eq!(pending.terminate(), None);
        assert_eq!(pending.wc_status(), WcStatus::WrFlushErr);
        assert_eq!(pending.qp_event(), QpEvent::None);
        assert_eq!(pending.fault(), Fault::Local);
        assert!(!AccessError::Bounds.during(op).is_pending());
    }
}
