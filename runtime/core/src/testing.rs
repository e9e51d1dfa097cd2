// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tests of this crate share.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use channel::Channels;
use engine::Peer;
use transport::{Config, Fabric};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::Messages;
use crate::pump::Pump;
use crate::var::Values;

/// A sealed memory file with an empty node segment of a job, as the daemon makes it.
pub(crate) fn segment(job: u64, ranks: u32) -> OwnedFd {
    let file = memfd_create("segment", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, ring::layout::file_bytes(ranks, 64 << 20)).unwrap();
    let head = ring::SegmentHead {
        job,
        local_size: ranks,
    };
    let written = rustix::io::pwrite(&file, &head.to_bytes(), 0).unwrap();
    assert_eq!(written, 24);
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
    file
}

/// Messages of a process that is alone.
pub(crate) fn messages_alone() -> Messages {
    let (values, _) = Values::from_environment(std::iter::empty());
    let fabric = Fabric::open(Config::alone()).unwrap();
    let ledger = Arc::clone(Channels::new().ledger());
    let pump = Pump::new(fabric, (Peer(0), 1), &values, Arc::default(), ledger);
    Messages::new(pump, &values)
}
