// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requester's retransmission timers and retry limits. IBTA vol. 1 section 9.7.6.1.3.
//!
//! After a timeout only one packet is sent again, as a probe; further retransmissions need a response from the peer. A
//! peer of another implementation is given up at the timeout that follows `retry_count` timeouts without progress. An
//! rmpi peer is given up at a timeout if it was not known to be alive for `silence_ns`, or if for as long it has
//! received packets that were sent later, and not the oldest, however often that was sent.

use super::config::Config;
use super::request::CompletionStatus;
use super::round_trip::RoundTrip;
use crate::format::rnr_timer_ns;
use crate::psn::Psn;

/// The timers of a requester, and its counters since the last progress (the arrival of a response that acknowledges
/// anything new).
#[derive(Debug)]
pub(super) struct Retry {
    /// The measured round trip; `None`: responses never time out.
    round_trip: Option<RoundTrip>,
    limit: RetryLimit,
    rnr_retry: u8,
    /// Number of timeouts since the last progress.
    count: u8,
    /// Number of RNR NAKs since the last progress.
    rnr_count: u8,
    /// When the response times out, in nanoseconds; `None`: no timer runs.
    deadline: Option<u64>,
    /// The end of the RNR timer: no request is sent before this time. `None`: it does not run.
    rnr_until: Option<u64>,
    /// Whether the requester has gone back since the last progress or timeout. If so, further NAKs and gaps are
    /// ignored.
    has_gone_back: bool,
    /// When the peer was last known to be alive, or when the timer was started for a new request, whichever was later.
    alive_at: u64,
    /// When the oldest packet became the oldest.
    progress_at: u64,
    /// Whether packets were sent again since the last response.
    has_probed: bool,
    /// Number of responses since `progress_at` that came after packets were sent again, and do not acknowledge the
    /// oldest: the peer receives other packets.
    missed: u32,
}

/// The limit after which an unresponsive peer is given up.
#[derive(Clone, Copy, Debug)]
enum RetryLimit {
    Timeouts(u8),
    SilenceNs(u64),
}

impl Retry {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            round_trip: RoundTrip::new(config),
            limit: match config.peer_is_rmpi {
                true => RetryLimit::SilenceNs(config.silence_ns),
                false => RetryLimit::Timeouts(config.retry_count),
            },
            rnr_retry: config.rnr_retry,
            count: 0,
            rnr_count: 0,
            deadline: None,
            rnr_until: None,
            has_gone_back: false,
            alive_at: 0,
            progress_at: 0,
            has_probed: false,
            missed: 0,
        }
    }

    /// Records a sent packet. `timed`: its PSN if it was sent for the first time and with AckReq, else `None`.
    pub(super) fn sent(&mut self, now: u64, timed: Option<Psn>) {
        if self.deadline.is_none() {
            self.alive_at = self.alive_at.max(now);
            self.progress_at = now;
            self.set_deadline(now);
        }
        if let (Some(psn), Some(round_trip)) = (timed, &mut self.round_trip) {
            round_trip.sent(now, psn);
        }
    }

    /// Records a retransmission of the packet with this PSN; `None`: of all unacknowledged packets.
    pub(super) fn sent_again(&mut self, psn: Option<Psn>) {
        self.has_probed = true;
        if let Some(round_trip) = &mut self.round_trip {
            round_trip.sent_again(psn);
        }
    }

    /// PSN of the packet whose round trip is being measured.
    pub(super) fn timed(&self) -> Option<Psn> {
        self.round_trip.as_ref()?.timed()
    }

    /// Ends the measurement, because the timed packet was acknowledged. Returns its round trip, and the longest time in
    /// it in which nothing came from the peer, both in nanoseconds.
    pub(super) fn measure(&mut self, now: u64) -> Option<(u64, u64)> {
        self.round_trip.as_mut()?.answered(now)
    }

    /// Records that the peer is alive.
    pub(super) fn note_alive(&mut self, now: u64) {
        if let Some(round_trip) = &mut self.round_trip {
            round_trip.heard(now, self.alive_at);
        }
        self.alive_at = self.alive_at.max(now);
    }

    /// Records progress. `more_outstanding`: whether packets are still unacknowledged.
    pub(super) fn progress(&mut self, now: u64, more_outstanding: bool) {
        self.count = 0;
        self.rnr_count = 0;
        self.has_gone_back = false;
        self.deadline = None;
        if let Some(round_trip) = &mut self.round_trip {
            round_trip.progress();
        }
        if more_outstanding && self.rnr_until.is_none() {
            self.set_deadline(now);
        }
    }

    /// Records a response. `is_missing`: whether the oldest packet is the same as before it.
    pub(super) fn note_oldest(&mut self, now: u64, is_missing: bool) {
        if is_missing {
            self.missed += u32::from(std::mem::take(&mut self.has_probed));
        } else {
            (self.progress_at, self.has_probed, self.missed) = (now, false, 0);
        }
    }

    /// Returns whether to go back because of a NAK or a gap, and records it: `true` only once until the next progress
    /// or timeout.
    pub(super) fn should_go_back(&mut self) -> bool {
        !std::mem::replace(&mut self.has_gone_back, true)
    }

    /// Handles an RNR NAK and starts the RNR timer. `Ok(false)`: the timer runs already, so the NAK is ignored. `Err`:
    /// too many RNR NAKs.
    pub(super) fn rnr_nak(&mut self, now: u64, timer: u8) -> Result<bool, CompletionStatus> {
        if self.rnr_until.is_some() {
            return Ok(false);
        }
        if self.rnr_retry != RNR_RETRY_UNLIMITED {
            if self.rnr_count >= self.rnr_retry {
                return Err(CompletionStatus::RnrRetryExceeded);
            }
            self.rnr_count += 1;
        }
        self.rnr_until = Some(now.saturating_add(rnr_timer_ns(timer)));
        self.deadline = None;
        self.has_gone_back = true;
        Ok(true)
    }

    /// Returns whether packets may be sent now, and ends the RNR timer when it has expired. `outstanding`: whether
    /// there are unacknowledged packets.
    pub(super) fn may_send(&mut self, now: u64, outstanding: bool) -> bool {
        let is_over = self.rnr_until.is_some_and(|until| until <= now);
        if is_over {
            self.rnr_until = None;
            if outstanding {
                self.set_deadline(now);
            }
        }
        self.rnr_until.is_none()
    }

    /// Returns whether the response has timed out; then a probe must be sent, and the timer is started again. `Err`:
    /// the peer is given up.
    pub(super) fn is_overdue(&mut self, now: u64) -> Result<bool, CompletionStatus> {
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return Ok(false);
        }
        let is_given_up = match self.limit {
            RetryLimit::Timeouts(most) => self.count >= most,
            // A packet that never arrives although others do is too long for the path, for instance.
            RetryLimit::SilenceNs(most) => {
                now.saturating_sub(self.alive_at) >= most
                    || (self.missed >= MOST_MISSED && now.saturating_sub(self.progress_at) >= most)
            }
        };
        if is_given_up {
            return Err(CompletionStatus::RetryExceeded);
        }
        self.count = self.count.saturating_add(1);
        self.has_gone_back = false;
        self.has_probed = true;
        if let Some(round_trip) = &mut self.round_trip {
            round_trip.back_off();
        }
        self.set_deadline(now);
        Ok(true)
    }

    /// When the RNR timer or the response timer expires next, in nanoseconds; `None`: neither runs.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.rnr_until.or(self.deadline)
    }

    fn set_deadline(&mut self, now: u64) {
        let wait = self.round_trip.as_ref().map(RoundTrip::wait_ns);
        self.deadline = wait.map(|wait| now.saturating_add(wait));
    }
}

/// Number of times that the oldest packet must have been missing in a response before the peer is given up for it.
const MOST_MISSED: u32 = 8;
/// The value of `rnr_retry` that means: no limit.
const RNR_RETRY_UNLIMITED: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    fn retry(retry_count: u8, rnr_retry: u8) -> Retry {
        Retry::new(&Config {
            retry_count,
            rnr_retry,
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
    fn progress_resets_the_retry_count() {
        let mut retry = retry(1, 7);
        retry.sent(0, None);
        assert_eq!(retry.is_overdue(TIMEOUT_NS), Ok(true));
        retry.progress(TIMEOUT_NS, true);
        assert_eq!(retry.is_overdue(3 * TIMEOUT_NS), Ok(true));
        retry.progress(3 * TIMEOUT_NS, false);
        assert_eq!(retry.deadline(), None);
    }

    #[test]
    fn requester_goes_back_once_without_progress() {
        let mut retry = retry(1, 7);
        assert!(retry.should_go_back());
        assert!(!retry.should_go_back());
        retry.progress(0, true);
        assert!(retry.should_go_back());
    }

    #[test]
    fn s9_7_5_2_8_rnr_nak_pauses_sending_for_the_timer() {
        let mut retry = retry(1, 1);
        retry.sent(0, None);
        assert_eq!(retry.rnr_nak(0, 1), Ok(true));
        assert_eq!(retry.rnr_nak(5, 1), Ok(false));
        assert!(!retry.should_go_back() && !retry.may_send(9_999, true));
        assert_eq!(retry.deadline(), Some(10_000));
        assert!(retry.may_send(10_000, true));
        assert_eq!(
            retry.rnr_nak(10_001, 1),
            Err(CompletionStatus::RnrRetryExceeded)
        );
    }

    #[test]
    fn rnr_pause_prevents_timeouts() {
        let mut retry = retry(0, 7);
        retry.sent(0, None);
        assert_eq!(retry.rnr_nak(0, 1), Ok(true));
        retry.progress(1, true);
        assert_eq!(retry.is_overdue(9_999), Ok(false));
    }

    #[test]
    fn rnr_retry_7_is_unlimited() {
        let mut retry = retry(1, 7);
        for round in 0..100 {
            assert_eq!(retry.rnr_nak(round * 20_000, 1), Ok(true));
            assert!(retry.may_send((round + 1) * 20_000, true));
        }
    }

    #[test]
    fn rmpi_peer_is_given_up_only_after_silence() {
        let mut retry = Retry::new(&Config {
            peer_is_rmpi: true,
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
        retry.note_alive(1_090_000);
        assert_eq!(retry.is_overdue(1_110_000), Ok(true));
        let silent = retry.is_overdue(1_190_000);
        assert_eq!(silent, Err(CompletionStatus::RetryExceeded));
    }

    #[test]
    fn a_packet_that_never_arrives_although_others_do_ends_the_connection() {
        for answers in [true, false] {
            let mut retry = Retry::new(&Config {
                peer_is_rmpi: true,
                floor_ns: 0,
                ceiling_ns: 10_000,
                silence_ns: 100_000,
                ..Config::new(1, 2, "10.0.0.1:4791".parse().unwrap())
            });
            retry.sent(0, None);
            let mut last = Ok(true);
            for now in (10_000..=100_000).step_by(10_000) {
                last = retry.is_overdue(now);
                // Alive by other means, or because it answers.
                retry.note_alive(now);
                if answers {
                    retry.note_oldest(now, true);
                    retry.note_oldest(now, true);
                }
            }
            let is_given_up = last == Err(CompletionStatus::RetryExceeded);
            assert_eq!(is_given_up, answers, "{last:?}");
        }
    }
}
