// SPDX-License-Identifier: MIT OR Apache-2.0
//! Escalation: the steps by which a job is ended, from the first signal to SIGKILL. Does no I/O: time is an argument.

use nix::sys::signal::Signal;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EscalationStep {
    /// Send this signal to every rank that is alive.
    Signal(Signal),
    /// Send SIGKILL to every rank and all its descendants, repeatedly until no process is left.
    Kill,
}

/// The steps that are still to come, with their times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Escalation(VecDeque<(Instant, EscalationStep)>);

impl Escalation {
    /// The steps after a failure: SIGTERM immediately, SIGKILL after 1 s.
    pub(crate) fn failure(now: Instant) -> Self {
        Self::new(
            now,
            &[
                (0, EscalationStep::Signal(Signal::SIGTERM)),
                (1, EscalationStep::Kill),
            ],
        )
    }

    /// The steps after a signal that requests the end of `rmpiexec`. The first step forwards this signal.
    pub(crate) fn signal(signal: Signal, now: Instant) -> Self {
        let first = (0, EscalationStep::Signal(signal));
        match signal {
            Signal::SIGTERM => Self::new(now, &[first, (5, EscalationStep::Kill)]),
            // The terminal is gone: no user waits for a clean end.
            Signal::SIGHUP => Self::new(now, &[first, (1, EscalationStep::Kill)]),
            _ => Self::new(
                now,
                &[
                    first,
                    (2, EscalationStep::Signal(Signal::SIGTERM)),
                    (7, EscalationStep::Kill),
                ],
            ),
        }
    }

    /// A single step: SIGKILL immediately.
    pub(crate) fn kill(now: Instant) -> Self {
        Self::new(now, &[(0, EscalationStep::Kill)])
    }

    /// Removes and returns the next step if it is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<EscalationStep> {
        self.0
            .pop_front_if(|(at, _)| *at <= now)
            .map(|(_, step)| step)
    }

    /// Time of the next step; `None` if there are no more steps.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.front().map(|(at, _)| *at)
    }

    fn new(now: Instant, steps: &[(u64, EscalationStep)]) -> Self {
        let at =
            |(seconds, step): &(u64, EscalationStep)| (now + Duration::from_secs(*seconds), *step);
        Self(steps.iter().map(at).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(mut escalation: Escalation, now: Instant) -> Vec<(u64, EscalationStep)> {
        let mut seen = Vec::new();
        while let Some(at) = escalation.next() {
            assert_eq!(escalation.clone().due(at - Duration::from_millis(1)), None);
            seen.extend(escalation.due(at).map(|step| ((at - now).as_secs(), step)));
        }
        seen
    }

    #[test]
    fn a_failure_gives_the_others_one_second() {
        let now = Instant::now();
        let expected = [
            (0, EscalationStep::Signal(Signal::SIGTERM)),
            (1, EscalationStep::Kill),
        ];
        assert_eq!(steps(Escalation::failure(now), now), expected);
    }

    #[test]
    fn an_interrupt_escalates_through_sigterm_to_sigkill() {
        let now = Instant::now();
        let expected = [
            (0, EscalationStep::Signal(Signal::SIGINT)),
            (2, EscalationStep::Signal(Signal::SIGTERM)),
            (7, EscalationStep::Kill),
        ];
        assert_eq!(
            steps(Escalation::signal(Signal::SIGINT, now), now),
            expected
        );
    }

    #[test]
    fn sighup_and_sigterm_escalate_to_sigkill() {
        let now = Instant::now();
        let hangup = steps(Escalation::signal(Signal::SIGHUP, now), now);
        assert_eq!(
            hangup,
            [
                (0, EscalationStep::Signal(Signal::SIGHUP)),
                (1, EscalationStep::Kill)
            ]
        );
        let terminate = steps(Escalation::signal(Signal::SIGTERM, now), now);
        assert_eq!(
            terminate,
            [
                (0, EscalationStep::Signal(Signal::SIGTERM)),
                (5, EscalationStep::Kill)
            ]
        );
    }
}
