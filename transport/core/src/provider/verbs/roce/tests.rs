// SPDX-License-Identifier: MIT OR Apache-2.0
//! The port by itself, over UDP within this host, and the whole provider over it and over a carrier with faults.
#![allow(clippy::cast_possible_truncation, reason = "sizes of tests are small")]

mod events;
mod narrow;
mod pairs;
mod side;
mod unsolicited;
mod world;
