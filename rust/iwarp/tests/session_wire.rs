// SPDX-License-Identifier: GPL-2.0

//! What two ends say about a session: the bytes, what is refused, and the offer in the handshake.

mod common;

use common::{
    crc32c,
    Rng, //
};
use iwarp::{
    mpa::{
        Config,
        Established,
        Initiator,
        Reply,
        Responder,
        Revision,
        RtrSet,
        MAX_FRAME, //
    },
    wire::session::{
        Address,
        Key,
        Offer,
        Positions,
        Refusal,
        Refused,
        Resume,
        Resumed, //
    }, //
};

const OFFER: Offer = Offer {
    session: 0x0102_0304_0506_0708,
    key: Key(0x1112_1314_1516_1718_191a_1b1c_1d1e_1f20),
    boot_id: 0x2122_2324_2526_2728,
    dev_epoch: 0x3132_3334,
    addresses: [
        Some(Address::V4([10, 1, 0, 2])),
        Some(Address::V6(*b"0123456789abcdef")),
        None,
        None,
    ],
};
const AT: Positions = Positions {
    rx: 1,
    una: 1 << 40,
    sent: u64::MAX,
};
const RESUME: Resume = Resume {
    session: OFFER.session,
    key: OFFER.key,
    gen: 0x4142_4344,
    switch: 5,
    at: AT,
};
const RESUMED: Resumed = Resumed {
    session: OFFER.session,
    gen: 0x4142_4344,
    at: AT,
};
const CONFIG: Config = Config {
    revision: Revision::Two,
    crc: true,
    large_fpdus: false,
    send_imm: false,
    resume: true,
    ird: 4,
    ord: 4,
    max_ird: 8,
    max_ord: 8,
    rtr: RtrSet::NONE,
};

#[test]
fn the_bytes_are_these() {
    let mut offer = b"siwO\x01\0\0\0".to_vec();
    offer.extend(1..=8);
    offer.extend(0x11..=0x20);
    offer.extend(0x21..=0x28);
    offer.extend(0x31..=0x34);
    offer.extend(b"\x04\x0a\x01\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\x060123456789abcdef");
    offer.extend([0; 34]);
    offer.extend(crc32c(&offer).to_be_bytes());
    assert_eq!(OFFER.emit()[..], offer);
    assert_eq!(offer.len(), Offer::LEN);
    assert_eq!(Offer::split(&offer), Some((&[][..], OFFER)));

    let mut numbers = Vec::new();
    numbers.extend(1u64.to_be_bytes());
    numbers.extend((1u64 << 40).to_be_bytes());
    numbers.extend(u64::MAX.to_be_bytes());
    let head = |kind: u8, code: u8| {
        let mut bytes = b"siwR\x01".to_vec();
        bytes.extend([kind, code, 0]);
        bytes.extend(1..=8);
        bytes.extend(0x41..=0x44);
        bytes
    };
    let key: Vec<u8> = (0x11..=0x20).collect();
    let resume = [&head(1, 0)[..], &[0, 0, 0, 5], &key, &numbers].concat();
    assert_eq!(RESUME.emit()[..], resume);
    assert_eq!(Resume::parse(&resume), Some(RESUME));
    let resumed = [head(2, 0), numbers].concat();
    assert_eq!(RESUMED.emit()[..], resumed);
    assert_eq!(Resumed::parse(&resumed), Some(RESUMED));
    for (code, why) in [
        (1, Refusal::Unknown),
        (2, Refusal::Key),
        (3, Refusal::Stale),
        (4, Refusal::Positions),
        (5, Refusal::Busy),
    ] {
        let refused = Refused {
            session: OFFER.session,
            gen: 0x4142_4344,
            why,
        };
        assert_eq!(refused.emit()[..], head(3, code));
        assert_eq!(Refused::parse(&head(3, code)), Some(refused));
    }
    let later = Refused::parse(&head(3, 99)).unwrap();
    assert_eq!(later.why, Refusal::Unknown);
}

/// Keys do not get into logs.
#[test]
fn a_key_is_not_shown() {
    assert_eq!(format!("{:?}", Key(0x1234)), "Key");
    for bit in 0..128 {
        assert!(!Key(7).matches(Key(7 ^ 1 << bit)));
    }
    assert!(Key(7).matches(Key(7)));
}

#[test]
fn anything_else_is_refused() {
    let refused = Refused {
        session: 1,
        gen: 2,
        why: Refusal::Stale,
    };
    let all = [
        RESUME.emit().to_vec(),
        RESUMED.emit().to_vec(),
        refused.emit().to_vec(),
    ];
    let understood = |bytes: &[u8]| {
        [
            Resume::parse(bytes).is_some(),
            Resumed::parse(bytes).is_some(),
            Refused::parse(bytes).is_some(),
        ]
    };
    for (kind, bytes) in all.iter().enumerate() {
        assert_eq!(understood(bytes), [0, 1, 2].map(|other| other == kind));
        for len in 0..bytes.len() {
            assert_eq!(understood(&bytes[..len]), [false; 3]);
        }
        assert_eq!(understood(&[bytes, &[0][..]].concat()), [false; 3]);
        for at in 0..6 {
            let mut other = bytes.clone();
            other[at] ^= 0x40;
            assert_eq!(understood(&other), [false; 3], "byte {at}");
        }
    }
    // An offer is short of nothing and has no bit wrong; what precedes it does not matter.
    let bytes = [&b"of the ULP"[..], &OFFER.emit()].concat();
    assert_eq!(Offer::split(&bytes), Some((&b"of the ULP"[..], OFFER)));
    for at in 10..bytes.len() {
        for bit in 0..8 {
            let mut other = bytes.clone();
            other[at] ^= 1 << bit;
            assert_eq!(Offer::split(&other), None, "{at} {bit}");
        }
        assert_eq!(Offer::split(&bytes[..at]), None);
    }
    let mut rng = Rng::new(1);
    for len in 0..200 {
        assert_eq!(Offer::split(&rng.bytes(len)), None);
    }
}

/// Both ends of a handshake, and the private data that the initiator's ULP gets.
fn connect(
    ours: Config,
    theirs: Config,
    offer: Option<Offer>,
    private: &[u8],
) -> (Established, Established, Vec<u8>) {
    let (mut request, mut reply) = ([0; MAX_FRAME], [0; MAX_FRAME]);
    let mut initiator = Initiator::new(ours);
    let len = initiator.request(b"hello", &mut request).unwrap();
    let mut responder = Responder::new(theirs);
    feed(&request[..len], |bytes| {
        responder.feed(bytes).unwrap().is_some()
    });
    assert_eq!(responder.private_data(), b"hello");
    if let Some(offer) = offer {
        responder.offer(offer);
    }
    let (len, passive) = responder.accept(4, 4, private, &mut reply).unwrap();
    let mut active = None;
    feed(&reply[..len], |bytes| {
        if let Some(Reply::Accepted(est)) = initiator.feed(bytes).unwrap() {
            active = Some(est);
        }
        active.is_some()
    });
    (active.unwrap(), passive, initiator.private_data().to_vec())
}

/// In two pieces: no more may come than the machine asks for.
fn feed(frame: &[u8], mut take: impl FnMut(&[u8]) -> bool) {
    assert!(!take(&frame[..20]));
    assert!(take(&frame[20..]));
}

#[test]
fn both_ends_have_to_want_a_session() {
    for bits in 0..8 {
        let config = |bit: u8| Config {
            resume: bits & bit != 0,
            ..CONFIG
        };
        for revision in [Revision::One, Revision::Two] {
            let ours = Config {
                revision,
                ..config(1)
            };
            let offer = (bits & 4 != 0).then_some(OFFER);
            let (a, b, private) = connect(ours, config(2), offer, b"welcome");
            let session = (bits == 7).then_some(OFFER);
            assert_eq!((a.session, b.session), (session, session), "{bits}");
            assert_eq!(private, b"welcome");
        }
    }
}

/// The ULP's private data goes first.
#[test]
fn no_room_for_an_offer() {
    for (revision, most) in [(Revision::One, 512), (Revision::Two, 508)] {
        let config = Config { revision, ..CONFIG };
        for len in [most - Offer::LEN, most - Offer::LEN + 1, most] {
            let private = vec![7; len];
            let (a, b, got) = connect(config, CONFIG, Some(OFFER), &private);
            let fits = len + Offer::LEN <= most;
            assert_eq!(a.session.is_some(), fits, "{len}");
            assert_eq!(a.session, b.session);
            assert_eq!(got, private);
        }
    }
}

/// Private data that looks like an offer stays what it is, for an initiator that did not ask, and
/// in a rejection.
#[test]
fn an_offer_nobody_asked_for() {
    let plain = Config {
        resume: false,
        ..CONFIG
    };
    let (a, _, private) = connect(plain, CONFIG, None, &OFFER.emit());
    assert_eq!((a.session, &private[..]), (None, &OFFER.emit()[..]));

    let (mut request, mut reply) = ([0; MAX_FRAME], [0; MAX_FRAME]);
    let mut initiator = Initiator::new(CONFIG);
    let len = initiator.request(&[], &mut request).unwrap();
    let mut responder = Responder::new(CONFIG);
    feed(&request[..len], |bytes| {
        responder.feed(bytes).unwrap().is_some()
    });
    responder.offer(OFFER);
    let len = responder.reject(&OFFER.emit(), &mut reply).unwrap();
    feed(&reply[..len], |bytes| {
        matches!(initiator.feed(bytes).unwrap(), Some(Reply::Rejected(_)))
    });
    assert_eq!(initiator.private_data(), OFFER.emit());
}

/// A peer that copies the reserved bits of the request, as the C driver does, has no session, and
/// has not agreed to anything else either.
#[test]
fn a_peer_that_copies_bits() {
    for send_imm in [false, true] {
        let config = Config { send_imm, ..CONFIG };
        let mut frame = [0; MAX_FRAME];
        let mut initiator = Initiator::new(config);
        initiator.request(&[], &mut frame).unwrap();
        assert_eq!(frame[16] & 15, if send_imm { 3 } else { 1 });
        frame[..16].copy_from_slice(b"MPA ID Rep Frame");
        assert_eq!(initiator.feed(&frame[..20]).unwrap(), None);
        let Some(Reply::Accepted(est)) = initiator.feed(&frame[20..24]).unwrap() else {
            panic!()
        };
        assert_eq!((est.session, est.net.send_imm), (None, false));
    }
}
