// SPDX-License-Identifier: MIT OR Apache-2.0
//! Controls the termination of a daemon and of the processes that it leaves behind. It proceeds in short steps, between
//! which the shepherd continues to forward messages and to send heartbeats, so a process that takes long to terminate
//! delays no other node. No I/O: time is an argument.

use std::time::{Duration, Instant};

/// Time within which a daemon must exit after it has closed its connection; then it is killed.
const END_WITHIN: Duration = Duration::from_secs(1);
/// Time for which the processes that the daemon left behind are killed repeatedly. Then the daemon is reported as
/// ended, even if some of them are left.
const LEFTOVERS_WITHIN: Duration = Duration::from_secs(1);

/// A daemon that is terminating.
#[derive(Debug, Clone, Copy)]
pub(super) struct DaemonCleanup {
    pid: u32,
    begun: Instant,
    /// Since when the daemon and its leftovers are being killed; `None` before that.
    sweeping: Option<Instant>,
}

/// Next action of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CleanupAction {
    /// Do nothing now.
    Wait,
    /// Kill the daemon, if it has not terminated, and the processes that it left behind.
    Kill,
    /// The clean-up is complete.
    End,
}

impl DaemonCleanup {
    pub(super) fn new(pid: u32, now: Instant) -> Self {
        Self {
            pid,
            begun: now,
            sweeping: None,
        }
    }

    /// Pid of the daemon.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The next action. `has_ended`: whether the daemon has terminated. `is_any_left`: returns whether the daemon or a
    /// process that it left behind is running.
    pub(super) fn next(
        &mut self,
        has_ended: bool,
        is_any_left: impl FnOnce() -> bool,
        now: Instant,
    ) -> CleanupAction {
        let is_late = |since: Instant, time| now.saturating_duration_since(since) >= time;
        if !has_ended && !is_late(self.begun, END_WITHIN) {
            return CleanupAction::Wait;
        }
        let since = *self.sweeping.get_or_insert(now);
        match is_late(since, LEFTOVERS_WITHIN) || !is_any_left() {
            true => CleanupAction::End,
            false => CleanupAction::Kill,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(begun: Instant, millis: u64) -> Instant {
        begun + Duration::from_millis(millis)
    }

    #[test]
    fn cleanup_of_a_hanging_daemon_escalates_by_time() {
        let begun = Instant::now();
        let mut cleanup = DaemonCleanup::new(7, begun);
        let mut step = |millis| cleanup.next(false, || true, at(begun, millis));
        assert_eq!(
            [step(0), step(999)],
            [CleanupAction::Wait, CleanupAction::Wait]
        );
        assert_eq!(
            [step(1000), step(1999)],
            [CleanupAction::Kill, CleanupAction::Kill]
        );
        assert_eq!(step(2000), CleanupAction::End);
    }

    #[test]
    fn daemon_leftovers_are_killed_until_none_or_timeout() {
        let begun = Instant::now();
        let mut cleanup = DaemonCleanup::new(7, begun);
        assert_eq!(cleanup.next(false, || true, begun), CleanupAction::Wait);
        assert_eq!(
            cleanup.next(true, || true, at(begun, 10)),
            CleanupAction::Kill
        );
        let mut other = cleanup;
        assert_eq!(
            cleanup.next(true, || false, at(begun, 20)),
            CleanupAction::End
        );
        assert_eq!(
            other.next(true, || true, at(begun, 1009)),
            CleanupAction::Kill
        );
        assert_eq!(
            other.next(true, || true, at(begun, 1010)),
            CleanupAction::End
        );
    }
}
