// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the port by itself, over UDP within this host, and of the whole provider over UDP and over a carrier with
//! faults.
#![allow(clippy::cast_possible_truncation, reason = "sizes of tests are small")]

mod events;
mod narrow;
mod pairs;
mod side;
mod unsolicited;
mod world;
