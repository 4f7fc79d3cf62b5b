// SPDX-License-Identifier: GPL-2.0

//! The states of a queue pair, and who may do what to it when.

pub mod coalesce;
pub mod completions;
pub mod credits;
pub mod delivery;
pub mod fairness;
pub mod faults;
pub mod flush;
pub mod fsm;
pub mod intake;
pub mod owner;
pub mod phase;
