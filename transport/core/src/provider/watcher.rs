// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lets a process sleep on the bell of its node and on the network at once: the kernel waits for a word of memory or for a
//! descriptor, so a thread waits for the second and rings the first. It exists from the first such sleep on, and wakes
//! nobody who does not sleep.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use ring::{Bell, Wake};

use crate::wait;

/// The thread. It ends some time after this is dropped.
#[derive(Debug)]
pub(super) struct Watcher {
    /// One entry: the next sign shall ring.
    wanted: SyncSender<()>,
}

impl Watcher {
    /// Watches `sign` for the process with this local rank and bell; `None` where there can be no more threads.
    pub(super) fn new(sign: BorrowedFd<'_>, bell: &'static Bell, local_rank: u32) -> Option<Self> {
        let (wanted, asked) = sync_channel(1);
        let sign = sign.try_clone_to_owned().ok()?;
        std::thread::Builder::new()
            .name("rmpi-watcher".into())
            .stack_size(STACK_BYTES)
            .spawn(move || watch(&asked, &sign, bell, local_rank))
            .ok()?;
        Some(Self { wanted })
    }

    /// The next sign rings the bell, once.
    pub(super) fn watch(&self) {
        // Where one is waiting already, it will do.
        let _ = self.wanted.try_send(());
    }
}

fn watch(asked: &Receiver<()>, sign: &OwnedFd, bell: &Bell, local_rank: u32) {
    wait::leave_signals_to_others();
    while asked.recv().is_ok() {
        while !wait::poll_readable(sign.as_raw_fd(), PATIENCE) {
            if asked.try_recv() == Err(TryRecvError::Disconnected) {
                return;
            }
        }
        if bell.ring(local_rank) == Wake::Sleeper {
            wait::futex_wake(bell.sleep_word());
        }
    }
}

/// It calls a few functions of the system.
const STACK_BYTES: usize = 64 << 10;
/// How long the thread may stay after nobody wants it.
const PATIENCE: Duration = Duration::from_millis(500);
