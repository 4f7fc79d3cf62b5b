// SPDX-License-Identifier: GPL-2.0

//! The Terminate header against RFC 5040 figure 9, and against C siw's reading of it.

use super::Input;
use iwarp::{
    error::Error,
    mem::stag::Stag,
    wire::{
        rdmap::ReadRequest,
        terminate::{
            TermCode,
            Terminate, //
        }, //
    }, //
};

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(4) {
        1 | 3 => parse(input.rest()),
        0 => about_read(&mut input),
        _ => about_atomic(&mut input),
    }
}

/// The codes of the registry, row by row.
fn registered(layer: u8, etype: u8, ecode: u8) -> bool {
    match (layer, etype) {
        (0, 0) => true,
        (0, 1) => [0, 1, 2, 3, 4, 9, 0xff].contains(&ecode),
        (0, 2) => [5, 6, 7, 8, 9, 0xff].contains(&ecode),
        (1, 0) => ecode == 0,
        (1, 1) => [0, 1, 2, 3, 4].contains(&ecode),
        (1, 2) => [1, 2, 3, 4, 5, 6].contains(&ecode),
        (2, 0) => [1, 2, 3, 4, 5, 6, 7].contains(&ecode),
        _ => false,
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn request(bytes: &[u8]) -> ReadRequest {
    ReadRequest {
        sink_stag: Stag(number(&bytes[..4]) as u32),
        sink_to: number(&bytes[4..12]),
        len: number(&bytes[12..16]) as u32,
        source_stag: Stag(number(&bytes[16..20]) as u32),
        source_to: number(&bytes[20..28]),
    }
}

fn parse(bytes: &[u8]) {
    let parsed = Terminate::parse(bytes);
    let [kind, ecode, flags, _, rest @ ..] = bytes else {
        assert_eq!(parsed, Err(Error::Short));
        return;
    };
    let term = parsed.unwrap();
    let (high, low) = (kind >> 4, kind & 15);
    let (layer, etype, m, d, r);
    let swapped = if flags & 0xe0 != 0 {
        false
    } else if flags & 7 != 0 {
        true
    } else {
        !registered(high, low, *ecode) && registered(low, high, *ecode)
    };
    if swapped {
        (layer, etype) = (low, high);
        (m, d, r) = (flags & 1, flags & 2, flags & 4);
    } else {
        (layer, etype) = (high, low);
        (m, d, r) = (flags & 0x80, flags & 0x40, flags & 0x20);
    }
    assert_eq!(term.nibbles_swapped, swapped);
    assert_eq!(term.code, TermCode::new(layer, etype, *ecode));
    assert_eq!(term.code.is_known(), registered(layer, etype, *ecode));

    // Length, DDP header, RDMA header: each only behind the one before, and only if whole.
    let whole = rest.len() >= 2;
    let len = (m != 0 && whole).then(|| number(&rest[..2]) as u16);
    assert_eq!(term.ddp_len, len);
    let mut ddp = None;
    if d != 0 && whole {
        ddp = rest.get(2).and_then(|first| {
            let len = if first & 0x80 != 0 { 14 } else { 18 };
            rest.get(2..2 + len)
        });
    }
    assert_eq!(term.ddp.as_ref().map(|copy| copy.as_bytes()), ddp);
    let mut read = None;
    if let Some(header) = ddp {
        let copy = term.ddp.unwrap();
        if header[0] & 0x80 != 0 {
            let tagged = copy.tagged().unwrap();
            assert_eq!(u64::from(tagged.stag.0), number(&header[2..6]));
            assert_eq!(tagged.to, number(&header[6..14]));
            assert_eq!(copy.untagged(), None);
        } else {
            let untagged = copy.untagged().unwrap();
            assert_eq!(u64::from(untagged.qn), number(&header[6..10]));
            assert_eq!(u64::from(untagged.msn), number(&header[10..14]));
            assert_eq!(u64::from(untagged.mo), number(&header[14..18]));
            assert_eq!(copy.tagged(), None);
        }
        if r != 0 {
            read = rest[2 + header.len()..].get(..28).map(request);
        }
    }
    assert_eq!(term.read, read);

    // The RDMA header is nowhere without the DDP header.
    let mut out = [0; 52];
    let cut = Terminate { ddp: None, ..term };
    let n = cut.emit(&mut out).unwrap();
    assert_eq!(n, if cut.ddp_len.is_some() { 6 } else { 4 });
    assert_eq!((usize::from(cut.len()), out[2] & 0x7f), (n, 0));

    // Written again, in the order of the RFC.
    let n = term.emit(&mut out).unwrap();
    assert_eq!(n, usize::from(term.len()));
    assert_eq!(term.emit(&mut out[..n - 1]), Err(Error::Buffer));
    let again = Terminate::parse(&out[..n]).unwrap();
    if term.code.is_known() || out[2] != 0 {
        let straight = Terminate {
            nibbles_swapped: false,
            ..term
        };
        assert_eq!(again, straight);
    }
}

/// One about a Read Request that was partly answered (RFC 5040 4.8).
fn about_read(input: &mut Input<'_>) {
    let (msn, done) = (input.u32(), input.u32());
    let code = TermCode::new(0, 1, input.u8() % 5);
    let asked = ReadRequest {
        sink_stag: Stag(input.u32()),
        sink_to: input.edge(),
        len: input.u32(),
        source_stag: Stag(input.u32()),
        source_to: input.edge(),
    };
    let mut out = [0; 52];
    let n = Terminate::for_read(code, msn, &asked, done).emit(&mut out);
    assert_eq!(n, Ok(52));
    assert_eq!(out[..8], [0x01, code.ecode, 0xe0, 0, 0, 46, 0x41, 0x41]);
    assert_eq!(number(&out[8..16]), 1);
    assert_eq!(number(&out[16..20]), u64::from(msn));
    assert_eq!(number(&out[20..24]), 0);
    let left = request(&out[24..]);
    let moved = |to: u64| (u128::from(to) + u128::from(done)) as u64;
    assert_eq!(left.sink_to, moved(asked.sink_to));
    assert_eq!(left.source_to, moved(asked.source_to));
    assert_eq!(left.len, asked.len.saturating_sub(done));
    assert_eq!(left.sink_stag, asked.sink_stag);
    assert_eq!(left.source_stag, asked.source_stag);
}

/// One about an Atomic Request, which is not carried (RFC 7306 8.1).
fn about_atomic(input: &mut Input<'_>) {
    let msn = input.u32();
    let code = TermCode::new(0, 1 + input.u8() % 2, input.u8());
    let mut out = [0; 52];
    let n = Terminate::for_atomic(code, msn).emit(&mut out);
    assert_eq!(n, Ok(24));
    assert_eq!(out[..2], [code.etype, code.ecode]);
    assert_eq!(out[2..8], [0xc0, 0, 0, 18 + 52, 0x41, 0x4a]);
    assert_eq!(number(&out[8..16]), 1);
    assert_eq!(number(&out[16..20]), u64::from(msn));
    assert_eq!(number(&out[20..24]), 0);
}
