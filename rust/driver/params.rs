// SPDX-License-Identifier: GPL-2.0

//! Settings of connections: the parameters of the module, which each device begins with, and the
//! settings of the device.

use super::DeviceRef;
use iwarp::{
    mpa::Revision,
    qp::delivery::Rule, //
};
use kernel::prelude::*;
use rdma::Setting;

/// The settings of a device, or of the module for new devices. A connection keeps the settings that
/// it began with.
#[derive(Clone, Copy)]
pub struct Params {
    /// Ask for the MPA CRC (RFC 5044 4.4: the default MUST be to use it).
    pub(crate) crc: bool,
    /// MPA revision of the first request.
    pub(crate) mpa_rev: Revision,
    /// Ask for the peer-to-peer mode of RFC 6581 as initiator.
    pub(crate) peer_to_peer: bool,
    /// Use FPDUs larger than a TCP segment with peers that offer them too.
    pub(crate) large_fpdus: bool,
    /// Smallest message sent by reference, in bytes; 0: none is.
    pub(crate) zcopy_min: u32,
    /// How the driver finds out what the peer has acknowledged.
    pub(crate) rule: Rule,
    /// Copied messages of the SQ, too, complete when the peer has acknowledged them.
    pub(crate) acks: bool,
    /// Connect queue pairs without a connection manager.
    pub(crate) pairs: bool,
    /// Go on over another path when that of a connection is lost, with peers that do so, too.
    pub(crate) resume: bool,
    /// Largest page of a translation table, as a power of two: small ones let a test have long
    /// tables. Regions that exist are not affected.
    pub(crate) att_page_shift: u32,
    /// A control operation of the SQ that fails stops the SQ, and not the stream.
    pub(crate) drains: bool,
    /// How control operations are executed.
    pub(crate) control: Control,
    /// How long a silent peer counts as alive.
    pub(crate) silence: Silence,
    /// Milliseconds that a message waits for its receive to be posted; 0: it does not.
    pub(crate) recv_wait: u32,
}

/// How long a silent peer counts as alive.
#[derive(Clone, Copy)]
pub(crate) struct Silence {
    /// Seconds after which an idle peer is probed; 0: never.
    pub(crate) keepalive: u16,
    /// Milliseconds without an acknowledgement after which the peer is given up; 0: as many as TCP
    /// takes by itself.
    pub(crate) dead_after: u32,
}

/// How the control operations of an SQ are executed: registrations, invalidations and binds.
#[derive(Clone, Copy)]
pub(crate) struct Control {
    /// The longest page list that is registered where the work request is taken.
    pub(crate) inline_pages: u32,
    /// What each operation takes more, in microseconds, for tests. If not 0 none is executed where
    /// it is taken.
    pub(crate) delay: u32,
}

/// The values given at module load, under the names of the module's parameters.
#[allow(missing_docs, reason = "described where they are declared")]
pub struct Numbers {
    pub crc: u32,
    pub mpa_rev: u32,
    pub peer_to_peer: u32,
    pub large_fpdus: u32,
    pub zcopy_min: u32,
    pub eql: u32,
    pub ack_completions: u32,
    pub pairs: u32,
    pub resume: u32,
    pub reg_failure: u32,
    pub ctrl_inline_pages: u32,
    pub ctrl_delay_us: u32,
    pub keepalive: u32,
    pub dead_after: u32,
    pub recv_wait_ms: u32,
}

impl Params {
    /// Checks the values given at module load.
    pub fn new(given: &Numbers) -> Result<Self> {
        Ok(Self {
            crc: flag(given.crc)?,
            mpa_rev: revision(given.mpa_rev)?,
            peer_to_peer: flag(given.peer_to_peer)?,
            large_fpdus: flag(given.large_fpdus)?,
            zcopy_min: given.zcopy_min,
            rule: rule(given.eql)?,
            acks: flag(given.ack_completions)?,
            pairs: flag(given.pairs)?,
            resume: flag(given.resume)?,
            drains: flag(given.reg_failure)?,
            att_page_shift: ATT_PAGE_SHIFT,
            control: Control {
                inline_pages: given.ctrl_inline_pages,
                delay: delay(given.ctrl_delay_us)?,
            },
            silence: Silence {
                keepalive: keepalive(given.keepalive)?,
                dead_after: dead_after(given.dead_after)?,
            },
            recv_wait: recv_wait(given.recv_wait_ms)?,
        })
    }
}

/// The largest pages of x86-64, and of the kernel's linear mapping.
const ATT_PAGE_SHIFT: u32 = 30;
/// With this, 16 MiB have a table of the second order.
const ATT_PAGE_SHIFT_MIN: u32 = 6;

fn page_shift(size: u32) -> Result<u32> {
    let shift = size.trailing_zeros();
    match size.is_power_of_two() && (ATT_PAGE_SHIFT_MIN..=ATT_PAGE_SHIFT).contains(&shift) {
        true => Ok(shift),
        false => Err(EINVAL),
    }
}

/// Longer ones would keep a queue pair from ending.
const DELAY_MAX: u32 = 1_000_000;

fn delay(micros: u32) -> Result<u32> {
    match micros {
        0..=DELAY_MAX => Ok(micros),
        _ => Err(EINVAL),
    }
}

/// TCP has the same limit (`MAX_TCP_KEEPIDLE`).
const KEEPALIVE_MAX: u16 = 32_767;

fn keepalive(secs: u32) -> Result<u16> {
    match u16::try_from(secs) {
        Ok(secs @ ..=KEEPALIVE_MAX) => Ok(secs),
        _ => Err(EINVAL),
    }
}

/// TCP needs some time to send again what was lost.
const DEAD_AFTER_MIN: u32 = 1_000;
/// A day.
const DEAD_AFTER_MAX: u32 = 86_400_000;

fn dead_after(millis: u32) -> Result<u32> {
    match millis {
        0 | DEAD_AFTER_MIN..=DEAD_AFTER_MAX => Ok(millis),
        _ => Err(EINVAL),
    }
}

/// Less than a connection settles after the peer's FIN (`iwarp::cm`), and far less than a peer's
/// `dead_after`: its window is closed meanwhile.
const RECV_WAIT_MAX: u32 = 4_000;

fn recv_wait(millis: u32) -> Result<u32> {
    match millis {
        0..=RECV_WAIT_MAX => Ok(millis),
        _ => Err(EINVAL),
    }
}

fn flag(value: u32) -> Result<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(EINVAL),
    }
}

fn revision(value: u32) -> Result<Revision> {
    match value {
        1 => Ok(Revision::One),
        2 => Ok(Revision::Two),
        _ => Err(EINVAL),
    }
}

fn rule(eql: u32) -> Result<Rule> {
    Ok(match flag(eql)? {
        false => Rule::Hsn,
        true => Rule::Eql,
    })
}

/// Each of [`Params`], by the name of the module parameter. `att_page_max` has none.
pub(crate) const SETTINGS: &[Setting<DeviceRef>] = &[
    Setting {
        name: c"crc",
        get: |dev| dev.params.lock().crc.into(),
        set: |dev, value| {
            dev.params.lock().crc = flag(value)?;
            Ok(())
        },
    },
    Setting {
        name: c"mpa_rev",
        get: |dev| match dev.params.lock().mpa_rev {
            Revision::One => 1,
            Revision::Two => 2,
        },
        set: |dev, value| {
            dev.params.lock().mpa_rev = revision(value)?;
            Ok(())
        },
    },
    Setting {
        name: c"peer_to_peer",
        get: |dev| dev.params.lock().peer_to_peer.into(),
        set: |dev, value| {
            dev.params.lock().peer_to_peer = flag(value)?;
            Ok(())
        },
    },
    Setting {
        name: c"large_fpdus",
        get: |dev| dev.params.lock().large_fpdus.into(),
        set: |dev, value| {
            dev.params.lock().large_fpdus = flag(value)?;
            Ok(())
        },
    },
    Setting {
        name: c"zcopy_min",
        get: |dev| dev.params.lock().zcopy_min,
        set: |dev, value| {
            dev.params.lock().zcopy_min = value;
            Ok(())
        },
    },
    Setting {
        name: c"eql",
        get: |dev| match dev.params.lock().rule {
            Rule::Hsn => 0,
            Rule::Eql => 1,
        },
        set: |dev, value| {
            dev.params.lock().rule = rule(value)?;
            Ok(())
        },
    },
    Setting {
        name: c"ack_completions",
        get: |dev| dev.params.lock().acks.into(),
        set: |dev, value| {
            dev.params.lock().acks = flag(value)?;
            Ok(())
        },
    },
    Setting {
        name: c"pairs",
        get: |dev| dev.params.lock().pairs.into(),
        set: |dev, value| {
            let pairs = flag(value)?;
            dev.params.lock().pairs = pairs;
            if !pairs {
                dev.doors.close();
            }
            Ok(())
        },
    },
    Setting {
        name: c"resume",
        get: |dev| dev.params.lock().resume.into(),
        set: |dev, value| {
            dev.params.lock().resume = flag(value)?;
            Ok(())
        },
    },
    Setting {
        name: c"att_page_max",
        get: |dev| 1 << dev.params.lock().att_page_shift,
        set: |dev, value| {
            dev.params.lock().att_page_shift = page_shift(value)?;
            Ok(())
        },
    },
    Setting {
        name: c"reg_failure",
        get: |dev| dev.params.lock().drains.into(),
        set: |dev, value| {
            dev.params.lock().drains = flag(value)?;
            Ok(())
        },
    },
    Setting {
        name: c"ctrl_inline_pages",
        get: |dev| dev.params.lock().control.inline_pages,
        set: |dev, value| {
            dev.params.lock().control.inline_pages = value;
            Ok(())
        },
    },
    Setting {
        name: c"ctrl_delay_us",
        get: |dev| dev.params.lock().control.delay,
        set: |dev, value| {
            dev.params.lock().control.delay = delay(value)?;
            Ok(())
        },
    },
    Setting {
        name: c"keepalive",
        get: |dev| dev.params.lock().silence.keepalive.into(),
        set: |dev, value| {
            dev.params.lock().silence.keepalive = keepalive(value)?;
            Ok(())
        },
    },
    Setting {
        name: c"dead_after",
        get: |dev| dev.params.lock().silence.dead_after,
        set: |dev, value| {
            dev.params.lock().silence.dead_after = dead_after(value)?;
            Ok(())
        },
    },
    Setting {
        name: c"recv_wait_ms",
        get: |dev| dev.params.lock().recv_wait,
        set: |dev, value| {
            dev.params.lock().recv_wait = recv_wait(value)?;
            Ok(())
        },
    },
];
