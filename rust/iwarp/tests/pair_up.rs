// SPDX-License-Identifier: GPL-2.0

//! Queue pairs connected without a connection manager: who connects, and who is let in.

mod common;

use common::Rng;
use iwarp::cm::pair::{
    connects,
    Fit,
    Hello,
    Life,
    Lives, //
};

const LIFE: Life = Life {
    device: 0x0201,
    boot_id: 0xfedc_ba98_7654_3210,
    epoch: 6,
};

const A: Hello = Hello {
    qpn: 0x11,
    peer_qpn: 0xffffff,
    rq_psn: 0xabcdef,
    sq_psn: Some(5),
    nonce: 0x0123_4567_89ab_cdef,
    life: LIFE,
};
const B: Hello = Hello {
    qpn: 0xffffff,
    peer_qpn: 0x11,
    rq_psn: 5,
    sq_psn: Some(0xabcdef),
    nonce: 0x0123_4567_89ab_cdef,
    life: LIFE,
};

#[test]
fn exactly_one_end_connects() {
    let (low, high) = ([1; 16], [2; 16]);
    for (a, b) in [
        ((&low, 9), (&high, 3)),
        ((&low, 3), (&high, 9)),
        ((&low, 3), (&low, 9)),
    ] {
        assert_eq!(connects(a, b), Some(false));
        assert_eq!(connects(b, a), Some(true));
    }
    assert_eq!(connects((&low, 3), (&low, 3)), None);
}

#[test]
fn the_bytes_are_these() {
    let bytes = A.emit();
    assert_eq!(
        bytes,
        *b"siwQ\x02\x01\0\0\0\0\0\x11\0\xff\xff\xff\0\xab\xcd\xef\0\0\0\x05\x01\x23\x45\x67\x89\xab\xcd\xef\
           \0\0\0\0\0\0\x02\x01\xfe\xdc\xba\x98\x76\x54\x32\x10\0\0\0\x06"
    );
    assert_eq!(Hello::parse(&bytes), Some(A));
    let quiet = Hello { sq_psn: None, ..A };
    assert_eq!(Hello::parse(&quiet.emit()), Some(quiet));
}

#[test]
fn anything_else_is_refused() {
    let bytes = A.emit();
    for len in 0..bytes.len() {
        assert_eq!(Hello::parse(&bytes[..len]), None);
    }
    let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
    assert_eq!(Hello::parse(&longer), None);
    for at in 0..5 {
        let mut other = bytes;
        other[at] ^= 1;
        assert_eq!(Hello::parse(&other), None, "byte {at}");
    }
    let mut rng = Rng::new(1);
    for len in 0..80 {
        assert_eq!(Hello::parse(&rng.bytes(len)), None);
    }
}

#[test]
fn only_the_peer_fits() {
    let quiet = |hello| Hello {
        sq_psn: None,
        ..hello
    };
    assert_eq!(A.fits(&B), Fit::Yes);
    assert_eq!(B.fits(&A), Fit::Yes);
    // One end in RTS is enough, whichever it is; none is not.
    assert_eq!(quiet(A).fits(&B), Fit::Yes);
    assert_eq!(A.fits(&quiet(B)), Fit::Yes);
    assert_eq!(quiet(A).fits(&quiet(B)), Fit::Unknown);
    // PSNs have 24 bits.
    let wide = Hello {
        rq_psn: 0xff00_0005,
        ..B
    };
    assert_eq!(A.fits(&wide), Fit::Yes);

    for other in [Hello { qpn: 1, ..B }, Hello { peer_qpn: 1, ..B }] {
        let and_psn = Hello { rq_psn: 6, ..other };
        for other in [other, quiet(other), and_psn] {
            assert_eq!(A.fits(&other), Fit::Other, "{other:?}");
            assert_eq!(other.fits(&A), Fit::Other, "{other:?}");
        }
    }
    for wrong in [
        Hello { rq_psn: 6, ..B },
        Hello {
            sq_psn: Some(6),
            ..B
        },
    ] {
        assert_eq!(A.fits(&wrong), Fit::Guess, "{wrong:?}");
        assert_eq!(wrong.fits(&A), Fit::Guess, "{wrong:?}");
    }
    // What an end does not know it does not take on trust.
    let guess = Hello { rq_psn: 6, ..B };
    assert_eq!(A.fits(&quiet(guess)), Fit::Guess);
    assert_eq!(quiet(A).fits(&quiet(guess)), Fit::Unknown);
}

#[test]
fn an_earlier_life_is_recognised() {
    let (here, there) = ([1; 16], [2; 16]);
    let life = |boot_id, epoch| Life {
        device: 3,
        boot_id,
        epoch,
    };
    let mut lives = Lives::new();
    assert!(!lives.is_over(&here, &life(7, 1)));
    lives.met(&here, &life(7, 5));
    assert!(lives.is_over(&here, &life(7, 4)));
    assert!(!lives.is_over(&here, &life(7, 5)));
    assert!(!lives.is_over(&here, &life(7, 6)));
    // Another address, or another device there, has lives of its own.
    assert!(!lives.is_over(&there, &life(7, 4)));
    let other = Life {
        device: 4,
        ..life(7, 4)
    };
    assert!(!lives.is_over(&here, &other));
    // The epochs of a new boot begin anew.
    assert!(!lives.is_over(&here, &life(8, 1)));
    lives.met(&here, &life(8, 1));
    assert!(lives.is_over(&here, &life(7, 9)));
    lives.met(&here, &life(8, 2));
    assert!(lives.is_over(&here, &life(7, 9)));
    assert!(lives.is_over(&here, &life(8, 1)));
}

#[test]
fn the_last_peers_are_remembered() {
    let life = |epoch| Life { epoch, ..LIFE };
    let host = |n: usize| [u8::try_from(n).unwrap(); 16];
    let mut lives = Lives::new();
    for n in 0..Lives::ROOM {
        lives.met(&host(n), &life(5));
        lives.met(&host(n), &life(6));
    }
    assert!((0..Lives::ROOM).all(|n| lives.is_over(&host(n), &life(5))));
    lives.met(&host(Lives::ROOM), &life(6));
    assert!(!lives.is_over(&host(0), &life(5)));
    assert!((1..=Lives::ROOM).all(|n| lives.is_over(&host(n), &life(5))));
}
