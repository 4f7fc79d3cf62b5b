// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The test is the driver: it maps the same memory.

use super::*;
use crate::sys::{
    abi::{
        notify,
        op,
        MAX_SGE, //
    },
    With, //
};
use std::fs::File;

/// Words of the elements.
const SQE: usize = 15;
const RQE: usize = 14;
const CQE: usize = 4;

/// The head of a free element.
const FREE: u64 = 0;

/// Memory of so many words, as the library is offered it, and as the driver sees it.
fn memory(words: usize) -> (File, Shared) {
    let file = tempfile();
    file.set_len((words * 8) as u64).unwrap();
    let shared = Shared::map(&Offer::of(&file, 0, 1), words).unwrap();
    (file, shared)
}

/// A file without a name.
pub(crate) fn tempfile() -> File {
    use std::sync::atomic::AtomicU32;

    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let path = std::env::temp_dir().join(format!("siw-{}-{number}", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

fn words(memory: &[AtomicU64], from: usize, len: usize) -> Vec<u64> {
    memory[from..from + len]
        .iter()
        .map(|w| w.load(Relaxed))
        .collect()
}

fn send(id: u64, payload: Payload<'_>) -> Wqe<'_> {
    Wqe {
        id,
        op: op::WRITE,
        flags: wqe::SIGNALLED,
        remote: (0x1122_3344_5566_7788, 0xaabb_ccdd),
        payload,
    }
}

/// Appends one, and gives it to the driver.
fn post(sends: &mut Sends, wr: &Wqe<'_>) -> Result<(), Errno> {
    sends.push(wr)?;
    sends.publish();
    Ok(())
}

const LIST: &[Sge] = &[
    Sge {
        addr: 0x1000,
        length: 5,
        lkey: 6,
    },
    Sge {
        addr: 0x2000,
        length: 0xffff_ffff,
        lkey: 0x8000_0001,
    },
];

#[test]
fn offers_that_make_no_sense_are_refused() {
    let (file, _) = memory(SQE * 4);
    for entries in [0, 3, 6, u32::MAX, u32::MAX - 1] {
        let offer = Offer::of(&file, 0, entries);
        assert_eq!(Sends::map(&offer).err(), Some(Errno::EPROTO), "{entries}");
        assert_eq!(
            Recvs::map(&offer, 0).err(),
            Some(Errno::EPROTO),
            "{entries}"
        );
        assert_eq!(
            Completions::map(&offer).err(),
            Some(Errno::EPROTO),
            "{entries}"
        );
    }
    for key in [1, 8, 4095, u64::MAX, 1 << 63] {
        assert!(Sends::map(&Offer::of(&file, key, 4)).is_err(), "{key}");
    }
}

#[test]
fn a_send_is_laid_out_as_the_driver_reads_it() {
    let (file, driver) = memory(SQE * 2);
    let mut sends = Sends::map(&Offer::of(&file, 0, 2)).unwrap();
    post(&mut sends, &send(42, Payload::List(LIST))).unwrap();
    assert_eq!(
        words(&driver, 0, 7),
        [
            42,
            // flags VALID and SIGNALLED, 2 elements, opcode WRITE, the key
            0xaabb_ccdd_0002_0005,
            0x1122_3344_5566_7788,
            0x1000,
            0x0000_0006_0000_0005,
            0x2000,
            0x8000_0001_ffff_ffff,
        ]
    );
    let bytes: Vec<u8> = (1..=11).collect();
    post(&mut sends, &send(43, Payload::Inline(&bytes, 0x0102_0304))).unwrap();
    assert_eq!(words(&driver, SQE, 2), [43, 0xaabb_ccdd_0001_0007]);
    // Length and immediate data are in the first element of the list, the payload behind it.
    assert_eq!(
        words(&driver, SQE + 4, 3),
        [0x0102_0304_0000_000b, 0x0807_0605_0403_0201, 0x000b_0a09]
    );
}

#[test]
fn a_send_that_is_too_large_changes_nothing() {
    let (file, driver) = memory(SQE * 2);
    let mut sends = Sends::map(&Offer::of(&file, 0, 2)).unwrap();
    let list = [LIST[0]; MAX_SGE + 1];
    for payload in [Payload::List(&list), Payload::Inline(&[0; 81], 0)] {
        assert_eq!(sends.push(&send(1, payload)), Err(Errno::EINVAL));
    }
    assert_eq!(words(&driver, 0, 14), [0; 14]);
    post(&mut sends, &send(1, Payload::List(&list[1..]))).unwrap();
    post(&mut sends, &send(2, Payload::Inline(&[1; 80], 0))).unwrap();
    assert_eq!(driver[SQE * 2 - 1].load(Relaxed), 0x0101_0101_0101_0101);
}

#[test]
fn a_full_queue_takes_nothing_until_the_driver_has() {
    let (file, driver) = memory(SQE * 2);
    let mut sends = Sends::map(&Offer::of(&file, 0, 2)).unwrap();
    for round in 0..5 {
        post(&mut sends, &send(round, Payload::List(&[]))).unwrap();
        post(&mut sends, &send(round, Payload::List(&[]))).unwrap();
        assert_eq!(
            post(&mut sends, &send(99, Payload::List(&[]))),
            Err(Errno::ENOMEM)
        );
        assert_eq!(words(&driver, 0, 1), [round]);
        driver[1].store(FREE, Relaxed);
        driver[SQE + 1].store(FREE, Relaxed);
    }
}

#[test]
fn the_driver_gets_what_is_published() {
    let (file, driver) = memory(SQE * 2);
    let mut sends = Sends::map(&Offer::of(&file, 0, 2)).unwrap();
    post(&mut sends, &send(1, Payload::List(&[]))).unwrap();
    driver[1].store(FREE, Relaxed);
    let valid = |at: usize| driver[at * SQE + 1].load(Relaxed) & VALID != 0;

    // What is discarded leaves room for others.
    for id in [2, 3] {
        sends.push(&send(id, Payload::List(LIST))).unwrap();
    }
    assert_eq!(sends.push(&send(4, Payload::List(&[]))), Err(Errno::ENOMEM));
    assert!(!valid(0) && !valid(1));
    sends.discard();
    sends.publish();
    assert!(!valid(0) && !valid(1));

    for id in [5, 6] {
        sends.push(&send(id, Payload::List(&[]))).unwrap();
    }
    assert!(!valid(0) && !valid(1));
    sends.publish();
    assert_eq!(words(&driver, SQE, 2), [5, 0xaabb_ccdd_0000_0005]);
    assert_eq!(words(&driver, 0, 2), [6, 0xaabb_ccdd_0000_0005]);
    assert_eq!(sends.push(&send(7, Payload::List(&[]))), Err(Errno::ENOMEM));
}

#[test]
fn the_doorbell_is_for_a_driver_that_may_have_stopped() {
    let (file, driver) = memory(SQE * 4);
    let mut sends = Sends::map(&Offer::of(&file, 0, 4)).unwrap();
    let batch = |sends: &mut Sends, n| {
        let first = sends.position();
        for _ in 0..n {
            post(sends, &send(0, Payload::List(&[]))).unwrap();
        }
        sends.needs_doorbell(first)
    };
    // Nothing was before the first one.
    assert!(batch(&mut sends, 1));
    // It has not been taken, so the driver is still at it.
    assert!(!batch(&mut sends, 2));
    driver[1].store(FREE, Relaxed);
    driver[SQE + 1].store(FREE, Relaxed);
    assert!(!batch(&mut sends, 1));
    for head in [0, 1, 2, 3] {
        driver[SQE * head + 1].store(FREE, Relaxed);
    }
    assert!(batch(&mut sends, 1));
    driver[1].store(FREE, Relaxed);
    // All elements are new: the one before the first is the last.
    assert!(batch(&mut sends, 4));
}

#[test]
fn refused_sends_are_taken_back() {
    let (file, driver) = memory(SQE * 4);
    let mut sends = Sends::map(&Offer::of(&file, 0, 4)).unwrap();
    post(&mut sends, &send(0, Payload::List(&[]))).unwrap();
    let first = sends.position();
    for id in 1..4 {
        post(&mut sends, &send(id, Payload::List(&[]))).unwrap();
    }
    // The driver has taken the first two of them.
    for head in [0, 1, 2] {
        driver[SQE * head + 1].store(FREE, Relaxed);
    }
    assert_eq!(sends.take_back(first), 2);
    assert_eq!(driver[SQE * 3 + 1].load(Relaxed), FREE);
    // The next one goes where the last one was.
    post(&mut sends, &send(9, Payload::List(&[]))).unwrap();
    assert_eq!(words(&driver, SQE * 3, 1), [9]);
    assert_eq!(sends.take_back(sends.position()), 0);
}

#[test]
fn a_receive_is_laid_out_as_the_driver_reads_it() {
    let (file, driver) = memory(RQE * 2);
    let mut recvs = Recvs::map(&Offer::of(&file, 0, 2), 0).unwrap();
    assert_eq!(recvs.push(1, &[LIST[0]; MAX_SGE + 1]), Err(Errno::EINVAL));
    recvs.push(1, &[]).unwrap();
    recvs.push(2, LIST).unwrap();
    assert_eq!(recvs.push(3, &[]), Err(Errno::ENOMEM));
    assert_eq!(words(&driver, 0, 2), [1, 0x0000_0001]);
    assert_eq!(
        words(&driver, RQE, 4),
        [2, 0x0002_0001, 0x1000, 0x0000_0006_0000_0005]
    );
    driver[1].store(FREE, Relaxed);
    recvs.push(3, &[]).unwrap();
}

#[test]
fn an_entry_is_read_as_the_driver_wrote_it() {
    let (file, driver) = memory(CQE * 2 + 1);
    let mut entries = Completions::map(&Offer::of(&file, 0, 2)).unwrap();
    assert_eq!(entries.take(), None);
    // The flags are not valid yet.
    driver[1].store(0xffff_ffff_ffff_fffe, Relaxed);
    assert_eq!(entries.take(), None);
    for (at, word) in [5, 0x0000_1000_0003_0801, 0x77, 0xffff_ffff_0000_0009]
        .into_iter()
        .enumerate()
    {
        driver[at].store(word, Relaxed);
    }
    let plain = Entry {
        id: 5,
        op: op::RECEIVE,
        status: 3,
        bytes: 0x1000,
        qp_num: 9,
        with: With::Nothing,
    };
    assert_eq!(entries.take(), Some(plain));
    assert_eq!(entries.take(), None);
    assert_eq!(driver[1].load(Relaxed), FREE);
    // The queue has two elements.
    for (at, flags, with) in [
        (5, 0x21, With::Invalidate(0x77)),
        (1, 0x81, With::Immediate(0x77)),
    ] {
        driver[at - 1].store(5, Relaxed);
        driver[at].store(0x0000_1000_0003_0800 | flags, Relaxed);
        driver[at + 1].store(0x77, Relaxed);
        driver[at + 2].store(0xffff_ffff_0000_0009, Relaxed);
        assert_eq!(entries.take(), Some(Entry { with, ..plain }));
    }
}

#[test]
fn arming_does_not_weaken_a_request() {
    let (file, driver) = memory(CQE * 2 + 1);
    let entries = Completions::map(&Offer::of(&file, 0, 2)).unwrap();
    entries.notifier().arm(true);
    assert_eq!(driver[8].load(Relaxed), notify::SOLICITED.into());
    entries.notifier().arm(false);
    entries.notifier().arm(true);
    let both = notify::SOLICITED | notify::NEXT_COMPLETION;
    assert_eq!(driver[8].load(Relaxed), both.into());
    // The elements are not touched.
    assert_eq!(words(&driver, 0, 8), [0; 8]);
}
