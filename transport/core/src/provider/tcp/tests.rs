// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the whole provider that need to know its inside.

mod cores;
mod costs;
mod crowd;
mod descriptors;
mod door;
mod full;
mod hostile;
mod hostile_rails;
mod other_jobs;
mod patience;
mod rails;
mod room;
mod unsolicited;
mod versions;
mod world;
