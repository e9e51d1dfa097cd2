// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lets a process sleep on a doorbell and on descriptors together: the kernel waits for words of memory or for
//! descriptors, so a thread waits for the descriptors and rings the doorbell. The thread starts at the first such
//! sleep, and only wakes a process that sleeps.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;

use ring::Wake;

use crate::wait;
use crate::wait_set::Doorbell;

/// Handle of the thread, which ends some time after the handle is dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// Holds at most one request: to ring the doorbell when a descriptor is readable next.
    requests: SyncSender<()>,
    descriptors: Box<[RawFd]>,
    doorbell: Doorbell,
}

impl Watcher {
    /// Creates a watcher that, on request, rings `doorbell` when one of `descriptors` is readable; `None`: no more
    /// threads or descriptors can be created.
    pub(crate) fn new(descriptors: &[RawFd], doorbell: Doorbell) -> Option<Self> {
        let (requests, pending) = sync_channel(1);
        let own: Option<Vec<OwnedFd>> = descriptors
            .iter()
            .map(|descriptor| wait::duplicate(*descriptor))
            .collect();
        let own = own?;
        std::thread::Builder::new()
            .name("rmpi-watcher".into())
            .stack_size(STACK_BYTES)
            .spawn(move || watch(&pending, &own, doorbell))
            .ok()?;
        Some(Self {
            requests,
            descriptors: descriptors.into(),
            doorbell,
        })
    }

    /// Whether the watcher watches exactly these descriptors for this doorbell.
    pub(crate) fn watches(&self, descriptors: &[RawFd], doorbell: Doorbell) -> bool {
        self.descriptors[..] == *descriptors && std::ptr::eq(self.doorbell.bell, doorbell.bell)
    }

    /// Requests that the next readable descriptor rings the doorbell, once. `false`: the thread has ended.
    pub(crate) fn ring_at_next(&self) -> bool {
        // A request that is pending already suffices.
        !matches!(
            self.requests.try_send(()),
            Err(TrySendError::Disconnected(()))
        )
    }
}

fn watch(pending: &Receiver<()>, descriptors: &[OwnedFd], doorbell: Doorbell) {
    wait::leave_signals_to_others();
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    while pending.recv().is_ok() {
        while !wait::poll_readable(&raw, PATIENCE) {
            if pending.try_recv() == Err(TryRecvError::Disconnected) {
                return;
            }
        }
        if doorbell.bell.ring(doorbell.local_rank) == Wake::Sleeper {
            wait::futex_wake(doorbell.bell.sleep_word());
        }
    }
}

/// Stack of the thread, which only makes a few system calls.
const STACK_BYTES: usize = 64 << 10;
/// How often the thread, while no descriptor is readable, checks whether its handle was dropped.
const PATIENCE: Duration = Duration::from_millis(500);
