// SPDX-License-Identifier: MIT OR Apache-2.0
//! When packets are sent again, and when that has been tried often enough. IBTA vol. 1 section 9.7.6.

use super::config::Config;
use super::request::Status;
use crate::format::not_ready_ns;

/// The timers of a requester, and what it counts between two acknowledgements that bring something.
#[derive(Debug)]
pub(super) struct Retry {
    timeout_ns: Option<u64>,
    most: u8,
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
}

impl Retry {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            timeout_ns: config.timeout_ns(),
            most: config.retry_count,
            not_ready_most: config.not_ready_retries,
            count: 0,
            not_ready_count: 0,
            deadline: None,
            quiet_until: None,
            has_gone_back: false,
        }
    }

    /// A packet has left.
    pub(super) fn sent(&mut self, now: u64) {
        if self.deadline.is_none() {
            self.set_deadline(now);
        }
    }

    /// An acknowledgement has brought something.
    pub(super) fn progress(&mut self, now: u64, more_under_way: bool) {
        self.count = 0;
        self.not_ready_count = 0;
        self.has_gone_back = false;
        self.deadline = None;
        if more_under_way && self.quiet_until.is_none() {
            self.set_deadline(now);
        }
    }

    /// Something is missing; whether to go back, which is no second time right without progress.
    pub(super) fn should_go_back(&mut self) -> bool {
        !std::mem::replace(&mut self.has_gone_back, true)
    }

    /// The peer had no receive buffer. Whether this is news.
    pub(super) fn not_ready(&mut self, now: u64, timer: u8) -> Result<bool, Status> {
        if self.quiet_until.is_some() {
            return Ok(false);
        }
        if self.not_ready_most != FOR_EVER {
            if self.not_ready_count >= self.not_ready_most {
                return Err(Status::NotReadyExceeded);
            }
            self.not_ready_count += 1;
        }
        self.quiet_until = Some(now.saturating_add(not_ready_ns(timer)));
        self.deadline = None;
        self.has_gone_back = true;
        Ok(true)
    }

    /// Whether packets may leave now.
    pub(super) fn may_send(&mut self, now: u64) -> bool {
        self.quiet_until = self.quiet_until.filter(|until| *until > now);
        self.quiet_until.is_none()
    }

    /// Whether the answer is overdue, and so all is to be sent again.
    pub(super) fn is_overdue(&mut self, now: u64) -> Result<bool, Status> {
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return Ok(false);
        }
        if self.count >= self.most {
            return Err(Status::RetryExceeded);
        }
        self.count += 1;
        self.has_gone_back = false;
        self.deadline = None;
        Ok(true)
    }

    /// The next time at which something is to be done.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.quiet_until.or(self.deadline)
    }

    fn set_deadline(&mut self, now: u64) {
        self.deadline = self.timeout_ns.map(|wait| now.saturating_add(wait));
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
            ..Config::new(1, 2, "10.0.0.1:4791".parse().unwrap())
        })
    }

    const TIMEOUT_NS: u64 = 8192;

    #[test]
    fn s9_7_6_the_timer_runs_from_the_first_packet_and_gives_up_after_the_count() {
        let mut retry = retry(1, 7);
        retry.sent(0);
        retry.sent(100);
        assert_eq!(retry.deadline(), Some(TIMEOUT_NS));
        assert_eq!(retry.is_overdue(TIMEOUT_NS - 1), Ok(false));
        assert_eq!(retry.is_overdue(TIMEOUT_NS), Ok(true));
        retry.sent(TIMEOUT_NS);
        assert_eq!(retry.is_overdue(2 * TIMEOUT_NS), Err(Status::RetryExceeded));
    }

    #[test]
    fn progress_begins_anew() {
        let mut retry = retry(1, 7);
        retry.sent(0);
        assert_eq!(retry.is_overdue(TIMEOUT_NS), Ok(true));
        retry.progress(TIMEOUT_NS, true);
        assert_eq!(retry.is_overdue(2 * TIMEOUT_NS), Ok(true));
        retry.progress(2 * TIMEOUT_NS, false);
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
        retry.sent(0);
        assert_eq!(retry.not_ready(0, 1), Ok(true));
        assert_eq!(retry.not_ready(5, 1), Ok(false));
        assert!(!retry.should_go_back() && !retry.may_send(9_999));
        assert_eq!(retry.deadline(), Some(10_000));
        assert!(retry.may_send(10_000));
        assert_eq!(retry.not_ready(10_001, 1), Err(Status::NotReadyExceeded));
    }

    #[test]
    fn no_answer_is_overdue_while_the_peer_is_left_in_peace() {
        let mut retry = retry(0, 7);
        retry.sent(0);
        assert_eq!(retry.not_ready(0, 1), Ok(true));
        retry.progress(1, true);
        assert_eq!(retry.is_overdue(9_999), Ok(false));
    }

    #[test]
    fn seven_is_for_ever() {
        let mut retry = retry(1, 7);
        for round in 0..100 {
            assert_eq!(retry.not_ready(round * 20_000, 1), Ok(true));
            assert!(retry.may_send((round + 1) * 20_000));
        }
    }
}
