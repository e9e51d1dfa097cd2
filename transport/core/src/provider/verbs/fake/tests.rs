// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each rule of the fake.

mod datagrams;
mod faults;
mod harsh;
mod keys;
mod pairs;
mod side;
mod waiting;
mod work;
