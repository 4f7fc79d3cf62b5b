// SPDX-License-Identifier: GPL-2.0

//! `/sys/kernel/debug/siw/DEVICE/{qps,tpt,life}`. For a device outside of the initial network
//! namespace the folder is `DEVICE@INUM`, with the inode number of the namespace.

use super::{
    tpt::Tpt,
    DeviceRef,
    QpObj, //
};
use base::table::ObjTable;
use iwarp::{
    cm::pair::Life,
    mem::access::Kind, //
};
use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    fmt,
    prelude::*,
    str::CString,
    sync::Arc, //
};
use rdma::DeviceName;

/// The files of one device. Dropping them waits for readers.
pub(crate) struct Files {
    _qps: Pin<KBox<File<Arc<ObjTable<QpObj>>>>>,
    _tpt: Pin<KBox<File<Arc<Tpt>>>>,
    _life: Pin<KBox<File<Life>>>,
    _dir: Dir,
}

impl Files {
    /// Creates the files of the device below `parent`.
    pub(crate) fn new(parent: &Dir, name: DeviceName<'_>, dev: &DeviceRef) -> Result<Self> {
        let dir = match name.netns {
            None => parent.subdir(name.name),
            Some(inum) => parent.subdir(&CString::try_from_fmt(fmt!("{}@{inum}", name.name))?),
        };
        let qps = KBox::pin_init(
            dir.read_callback_file(c"qps", Ok::<_, Error>(dev.qps.clone()), &show_qps),
            GFP_KERNEL,
        )?;
        let tpt = KBox::pin_init(
            dir.read_callback_file(c"tpt", Ok::<_, Error>(dev.tpt.clone()), &show_tpt),
            GFP_KERNEL,
        )?;
        let life = KBox::pin_init(
            dir.read_callback_file(c"life", Ok::<_, Error>(dev.life()), &show_life),
            GFP_KERNEL,
        )?;
        Ok(Self {
            _qps: qps,
            _tpt: tpt,
            _life: life,
            _dir: dir,
        })
    }
}

fn show_life(life: &Life, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Life {
        device,
        boot_id,
        epoch,
    } = life;
    writeln!(f, "device {device:#018x}")?;
    writeln!(f, "boot_id {boot_id:#018x}")?;
    writeln!(f, "epoch {epoch}")
}

fn show_qps(qps: &Arc<ObjTable<QpObj>>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "qpn state phase pd sq rq connected sq_work rq_work transmit wrs orq irrq turns sent mover control receive"
    )?;
    let mut result = Ok(());
    qps.for_each(|qpn, qp| {
        if result.is_ok() {
            let (wrs, reads, requests) = qp.stream.depths();
            let (turns, sent, mover) = qp.stream.progress();
            let connected = qp.link.lock().is_some();
            result = writeln!(
                f,
                "{} {:?} {:?} {} {} {} {} {} {} {:?} {} {} {} {} {} {} {} {:?}",
                qpn,
                qp.state(),
                qp.phase(),
                qp.pd.0,
                qp.sq.size(),
                qp.rq.size(),
                u8::from(connected),
                u8::from(qp.sq.has_work()),
                u8::from(qp.rq.has_work()),
                qp.stream.owner(),
                wrs,
                reads,
                requests,
                turns,
                sent,
                mover,
                qp.stream.control.busy(),
                qp.stream.rx_state(),
            );
        }
    });
    result
}

fn show_tpt(tpt: &Arc<Tpt>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "stag kind valid touched pd rights base length windows qp region pending order page_size"
    )?;
    let mut result = Ok(());
    tpt.for_each(|region, pending, bound_to, translation| {
        if result.is_ok() {
            // Regions of the kernel show no address: it would reveal the kernel's layout.
            let base = match region.kind {
                Kind::Mr | Kind::Mw1 | Kind::Mw2 => region.base,
                Kind::FastMr | Kind::DmaMr => 0,
            };
            result = write!(
                f,
                "{:#010x} {:?} {} {} {} {:#x} {:#x} {:#x} {} {} {:#010x} {} ",
                region.stag.0,
                region.kind,
                u8::from(region.valid),
                u8::from(region.touched),
                region.pd.0,
                region.rights.0,
                base,
                region.len,
                region.windows,
                region.bound_qp.unwrap_or(0),
                bound_to.map_or(0, |stag| stag.0),
                pending,
            )
            .and_then(|()| match translation {
                Some(how) => writeln!(f, "{:?} {}", how.order, how.page_size),
                None => writeln!(f, "None 0"),
            });
        }
    });
    result
}
