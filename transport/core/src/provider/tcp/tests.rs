// SPDX-License-Identifier: MIT OR Apache-2.0
//! White-box tests of the whole provider.

mod cores;
mod costs;
mod crowd;
mod descriptors;
mod full;
mod hostile;
mod hostile_rails;
mod listener;
mod other_jobs;
mod patience;
mod rails;
mod room;
mod unsolicited;
mod versions;
mod world;
