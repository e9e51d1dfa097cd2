// SPDX-License-Identifier: MIT OR Apache-2.0
//! When packets are sent again, and when that has been tried often enough. IBTA vol. 1 section 9.7.6.1.3.
//!
//! An answer that is overdue brings one packet that asks for one; only what is answered says that more must be sent again. A
//! foreign peer is given up after `retry_count` of them, a peer of ours when it has given no sign of life for `silence_ns`.

use super::config::Config;
use super::request::CompletionStatus;
use super::round_trip::RoundTrip;
use crate::format::not_ready_ns;
use crate::psn::Psn;

/// The timers of a requester, and what it counts between two acknowledgements that bring something.
#[derive(Debug)]
pub(super) struct Retry {
    /// `None`: no answer is ever overdue.
    round_trip: Option<RoundTrip>,
    patience: RetryLimit,
    not_ready_most: u8,
    /// Time-outs since then.
    count: u8,
    /// RNR NAKs since then.
    not_ready_count: u8,
    /// When the answer is overdue.
    deadline: Option<u64>,
    /// Nothing leaves before; the peer had no receive buffer.
    quiet_until: Option<u64>,
    /// It has gone back since then: what else says that something is missing says nothing new.
    has_gone_back: bool,
    /// When the peer gave the last sign of life, or something was asked of it after a pause.
    alive_at: u64,
}

/// How long a peer that does not answer is believed to live.
#[derive(Clone, Copy, Debug)]
enum RetryLimit {
    Timeouts(u8),
    SilenceNs(u64),
}

impl Retry {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            round_trip: RoundTrip::new(config),
            patience: match config.peer_is_ours {
                true => RetryLimit::SilenceNs(config.silence_ns),
                false => RetryLimit::Timeouts(config.retry_count),
            },
            not_ready_most: config.not_ready_retries,
            count: 0,
            not_ready_count: 0,
            deadline: None,
            quiet_until: None,
            has_gone_back: false,
            alive_at: 0,
        }
    }

    /// A packet has left; `timed` is its number if it has left for the first time and asks for an answer.
    pub(super) fn sent(&mut self, now: u64, timed: Option<Psn>) {
        if self.deadline.is_none() {
            self.alive_at = self.alive_at.max(now);
            self.set_deadline(now);
        }
        if let (Some(psn), Some(round_trip)) = (timed, &mut self.round_trip) {
            round_trip.sent(now, psn);
        }
    }

    /// A packet is sent again; `None`: all that have no answer.
    pub(super) fn sent_again(&mut self, psn: Option<Psn>) {
        if let Some(round_trip) = &mut self.round_trip {
            round_trip.sent_again(psn);
        }
    }

    /// The packet that is timed.
    pub(super) fn timed(&self) -> Option<Psn> {
        self.round_trip.as_ref()?.timed()
    }

    /// That packet was answered; how long that took.
    pub(super) fn measure(&mut self, now: u64) -> Option<u64> {
        self.round_trip.as_mut()?.answered(now)
    }

    /// The peer has given a sign of life.
    pub(super) fn lives(&mut self, now: u64) {
        self.alive_at = self.alive_at.max(now);
    }

    /// An acknowledgement has brought something.
    pub(super) fn progress(&mut self, now: u64, more_under_way: bool) {
        self.count = 0;
        self.not_ready_count = 0;
        self.has_gone_back = false;
        self.deadline = None;
        if let Some(round_trip) = &mut self.round_trip {
            round_trip.progress();
        }
        if more_under_way && self.quiet_until.is_none() {
            self.set_deadline(now);
        }
    }

    /// Something is missing; whether to go back, which is no second time right without progress.
    pub(super) fn should_go_back(&mut self) -> bool {
        !std::mem::replace(&mut self.has_gone_back, true)
    }

    /// The peer had no receive buffer. Whether this is news.
    pub(super) fn not_ready(&mut self, now: u64, timer: u8) -> Result<bool, CompletionStatus> {
        if self.quiet_until.is_some() {
            return Ok(false);
        }
        if self.not_ready_most != FOR_EVER {
            if self.not_ready_count >= self.not_ready_most {
                return Err(CompletionStatus::NotReadyExceeded);
            }
            self.not_ready_count += 1;
        }
        self.quiet_until = Some(now.saturating_add(not_ready_ns(timer)));
        self.deadline = None;
        self.has_gone_back = true;
        Ok(true)
    }

    /// Whether packets may leave now; `under_way`: some have left that have no answer.
    pub(super) fn may_send(&mut self, now: u64, under_way: bool) -> bool {
        let is_over = self.quiet_until.is_some_and(|until| until <= now);
        if is_over {
            self.quiet_until = None;
            if under_way {
                self.set_deadline(now);
            }
        }
        self.quiet_until.is_none()
    }

    /// Whether the answer is overdue, and so is to be asked for.
    pub(super) fn is_overdue(&mut self, now: u64) -> Result<bool, CompletionStatus> {
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return Ok(false);
        }
        let is_given_up = match self.patience {
            RetryLimit::Timeouts(most) => self.count >= most,
            RetryLimit::SilenceNs(most) => now.saturating_sub(self.alive_at) >= most,
        };
        if is_given_up {
            return Err(CompletionStatus::RetryExceeded);
        }
        self.count = self.count.saturating_add(1);
        self.has_gone_back = false;
        if let Some(round_trip) = &mut self.round_trip {
            round_trip.back_off();
        }
        self.set_deadline(now);
        Ok(true)
    }

    /// The next time at which something is to be done.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.quiet_until.or(self.deadline)
    }

    fn set_deadline(&mut self, now: u64) {
        let wait = self.round_trip.as_ref().map(RoundTrip::wait_ns);
        self.deadline = wait.map(|wait| now.saturating_add(wait));
    }
}

/// The count of RNR retries that is none.
const FOR_EVER: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    fn retry(retry_count: u8, not_ready_retries: u8) -> Retry {
        Retry::new(&Config {
            retry_count,
            not_ready_retries,
            timeout: 1,
            floor_ns: 0,
            ..Config::new(1, 2, "10.0.0.1:4791".parse().unwrap())
        })
    }

    const TIMEOUT_NS: u64 = 8192;

    #[test]
    fn s9_7_6_1_3_the_timer_runs_from_the_first_packet_and_gives_up_after_the_count() {
        let mut retry = retry(1, 7);
        retry.sent(0, None);
        retry.sent(100, None);
        assert_eq!(retry.deadline(), Some(TIMEOUT_NS));
        assert_eq!(retry.is_overdue(TIMEOUT_NS - 1), Ok(false));
        assert_eq!(retry.is_overdue(TIMEOUT_NS), Ok(true));
        let second = TIMEOUT_NS + 2 * TIMEOUT_NS;
        assert_eq!(retry.deadline(), Some(second), "the wait has doubled");
        assert_eq!(
            retry.is_overdue(second),
            Err(CompletionStatus::RetryExceeded)
        );
    }

    #[test]
    fn progress_begins_anew() {
        let mut retry = retry(1, 7);
        retry.sent(0, None);
        assert_eq!(retry.is_overdue(TIMEOUT_NS), Ok(true));
        retry.progress(TIMEOUT_NS, true);
        assert_eq!(retry.is_overdue(3 * TIMEOUT_NS), Ok(true));
        retry.progress(3 * TIMEOUT_NS, false);
        assert_eq!(retry.deadline(), None);
    }

    #[test]
    fn it_goes_back_once_without_progress() {
        let mut retry = retry(1, 7);
        assert!(retry.should_go_back());
        assert!(!retry.should_go_back());
        retry.progress(0, true);
        assert!(retry.should_go_back());
    }

    #[test]
    fn s9_7_5_2_8_a_peer_without_a_buffer_is_left_in_peace_for_a_while() {
        let mut retry = retry(1, 1);
        retry.sent(0, None);
        assert_eq!(retry.not_ready(0, 1), Ok(true));
        assert_eq!(retry.not_ready(5, 1), Ok(false));
        assert!(!retry.should_go_back() && !retry.may_send(9_999, true));
        assert_eq!(retry.deadline(), Some(10_000));
        assert!(retry.may_send(10_000, true));
        assert_eq!(
            retry.not_ready(10_001, 1),
            Err(CompletionStatus::NotReadyExceeded)
        );
    }

    #[test]
    fn no_answer_is_overdue_while_the_peer_is_left_in_peace() {
        let mut retry = retry(0, 7);
        retry.sent(0, None);
        assert_eq!(retry.not_ready(0, 1), Ok(true));
        retry.progress(1, true);
        assert_eq!(retry.is_overdue(9_999), Ok(false));
    }

    #[test]
    fn seven_is_for_ever() {
        let mut retry = retry(1, 7);
        for round in 0..100 {
            assert_eq!(retry.not_ready(round * 20_000, 1), Ok(true));
            assert!(retry.may_send((round + 1) * 20_000, true));
        }
    }

    #[test]
    fn a_peer_of_ours_is_given_up_for_its_silence_alone() {
        let mut retry = Retry::new(&Config {
            peer_is_ours: true,
            retry_count: 0,
            timeout: 1,
            floor_ns: 0,
            ceiling_ns: 10_000,
            silence_ns: 100_000,
            ..Config::new(1, 2, "10.0.0.1:4791".parse().unwrap())
        });
        retry.sent(1_000_000, None);
        for round in 1..10 {
            assert_eq!(retry.is_overdue(1_000_000 + round * 10_000), Ok(true));
        }
        retry.lives(1_090_000);
        assert_eq!(retry.is_overdue(1_110_000), Ok(true));
        let silent = retry.is_overdue(1_190_000);
        assert_eq!(silent, Err(CompletionStatus::RetryExceeded));
    }
}
