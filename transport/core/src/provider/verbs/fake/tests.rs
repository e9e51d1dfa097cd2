// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the rules of the simulation.

pub(in super::super) mod block;
mod datagrams;
mod faults;
mod harsh;
mod keys;
mod pairs;
mod side;
mod waiting;
mod work;
