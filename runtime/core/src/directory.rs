// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network address records of the ranks of the job: this process publishes its own to the daemon, and requests those
//! of others when the transport first needs to reach a peer. Nothing blocks here: messages that the socket cannot take
//! are sent in a later turn of the progress loop, which also polls for replies.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wireup::{Record, ToDaemon, ToRank};

use crate::boot::{ControlInput, DaemonLink};

/// Messages to the daemon and outstanding requests.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Messages that the socket has not taken yet; at most a record, a request for each peer, a remark, and the report
    /// of quiescence.
    outgoing: VecDeque<ToDaemon>,
    /// Requests without a reply.
    open: u32,
    /// Turns since the last request or reply.
    turns: u32,
    /// Time of the last request or reply, once it was needed.
    since: Option<Instant>,
}

/// A message from the daemon about other processes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DaemonEvent {
    /// The address record of a rank.
    Record(u32, Record),
    /// There is no address record of that rank, for this reason.
    NoRecord(u32, String),
    /// Everything that any process has sent has arrived.
    AllQuiet,
    /// A rank has failed, for this reason, and the job continues.
    Lost(u32, String),
    /// The daemon has closed the connection.
    End,
}

impl Directory {
    /// Publishes the address record of this process.
    pub(crate) fn publish(&mut self, rank: u32, record: Record) {
        self.outgoing.push_back(ToDaemon::Publish { rank, record });
    }

    /// Requests the address record of another rank; to be called once for each.
    pub(crate) fn request_record(&mut self, rank: u32, of: u32) {
        self.outgoing.push_back(ToDaemon::LookUp { rank, of });
        self.open += 1;
        self.reset_backoff();
    }

    /// Sends a remark that the user should see once per job.
    pub(crate) fn remark(&mut self, rank: u32, text: String) {
        self.outgoing.push_back(ToDaemon::Remark { rank, text });
    }

    /// Reports that everything this process has sent over a network has arrived.
    pub(crate) fn report_quiescence(&mut self, rank: u32) {
        self.outgoing.push_back(ToDaemon::Quiet { rank });
        self.open += 1;
        self.reset_backoff();
    }

    /// Whether there is nothing to send and no reply to wait for.
    pub(crate) fn is_idle(&self) -> bool {
        self.open == 0 && self.outgoing.is_empty()
    }

    /// A turn of the progress loop: sends what is queued and polls for replies, if any is expected. A long wait is for
    /// a rank that has not called `MPI_Init`; polls are rare then.
    pub(crate) fn turn(&mut self, link: &DaemonLink) -> Option<DaemonEvent> {
        while self
            .outgoing
            .front()
            .is_some_and(|words| link.try_send(words))
        {
            self.outgoing.pop_front();
        }
        if self.open == 0 {
            return None;
        }
        self.turns = self.turns.wrapping_add(1);
        if self.turns > EAGER_TURNS && !self.turns.is_multiple_of(EAGER_TURNS) {
            return None;
        }
        self.receive(link)
    }

    /// The next message from the daemon, whether one is expected or not.
    pub(crate) fn receive(&mut self, link: &DaemonLink) -> Option<DaemonEvent> {
        let event = match link.receive() {
            ControlInput::Message(ToRank::Record { rank, record }) => {
                DaemonEvent::Record(rank, record)
            }
            ControlInput::Message(ToRank::NoRecord { rank, why }) => {
                DaemonEvent::NoRecord(rank, why)
            }
            ControlInput::Message(ToRank::AllQuiet) => DaemonEvent::AllQuiet,
            // Unsolicited messages.
            ControlInput::Message(ToRank::Lost { rank, why }) => {
                return Some(DaemonEvent::Lost(rank, why));
            }
            ControlInput::End => return Some(DaemonEvent::End),
            ControlInput::Message(_) | ControlInput::Nothing => return None,
        };
        self.open = self.open.saturating_sub(1);
        self.reset_backoff();
        Some(event)
    }

    /// How long the process may sleep: no message of the daemon wakes it. After that it polls.
    pub(crate) fn sleep_limit(&mut self, now: Instant) -> Duration {
        if self.is_idle() {
            return Duration::MAX;
        }
        self.turns = 0;
        let since = *self.since.get_or_insert(now);
        ((now - since) / 8).clamp(SHORTEST_SLEEP, LONGEST_SLEEP)
    }

    fn reset_backoff(&mut self) {
        (self.turns, self.since) = (0, None);
    }
}

/// Turns that poll every time; later turns poll once in this many.
const EAGER_TURNS: u32 = 64;
/// Shortest and longest sleep between two polls: at first, and after a long wait.
const SHORTEST_SLEEP: Duration = Duration::from_micros(50);
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::OwnedFd;
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

    /// A connection to a daemon, and the daemon's end of it.
    fn line() -> (DaemonLink, OwnedFd) {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::NONBLOCK,
            None,
        )
        .unwrap();
        (DaemonLink::new(ours, 3), theirs)
    }

    fn record(number: u8) -> Record {
        Record::new(&[number; 24]).unwrap()
    }

    /// The next message that the daemon receives.
    fn received(daemon: &OwnedFd) -> Option<ToDaemon> {
        let mut bytes = [0; wireup::MAX_DATAGRAM_BYTES];
        let (length, _) = rustix::net::recv(daemon, &mut bytes[..], RecvFlags::empty()).ok()?;
        ToDaemon::decode(&bytes[..length]).ok()
    }

    fn send(daemon: &OwnedFd, words: &ToRank) {
        rustix::net::send(daemon, &words.encode(), SendFlags::empty()).unwrap();
    }

    #[test]
    fn what_is_asked_is_said_in_a_turn_and_the_answer_heard_in_a_later_one() {
        let (link, daemon) = line();
        let mut directory = Directory::default();
        assert!(directory.is_idle());
        directory.publish(3, record(3));
        directory.request_record(3, 5);
        assert!(!directory.is_idle());
        assert_eq!(directory.turn(&link), None);
        let record_of_3 = record(3);
        assert_eq!(
            received(&daemon),
            Some(ToDaemon::Publish {
                rank: 3,
                record: record_of_3
            })
        );
        assert_eq!(received(&daemon), Some(ToDaemon::LookUp { rank: 3, of: 5 }));
        let (rank, answer) = (5, record(5));
        send(
            &daemon,
            &ToRank::Record {
                rank,
                record: answer,
            },
        );
        assert_eq!(
            directory.turn(&link),
            Some(DaemonEvent::Record(5, record(5)))
        );
        assert!(directory.is_idle());
    }

    #[test]
    fn a_remark_is_said_and_nobody_waits_for_an_answer() {
        let (link, daemon) = line();
        let mut directory = Directory::default();
        let text = "tcp carries it".to_owned();
        directory.remark(3, text.clone());
        assert!(!directory.is_idle());
        assert_eq!(directory.turn(&link), None);
        assert_eq!(received(&daemon), Some(ToDaemon::Remark { rank: 3, text }));
        assert!(directory.is_idle());
    }

    #[test]
    fn a_daemon_that_does_not_read_stops_nobody() {
        let (link, daemon) = line();
        let mut directory = Directory::default();
        for of in 0..10_000 {
            directory.request_record(3, of);
        }
        assert_eq!(directory.turn(&link), None);
        assert!(!directory.outgoing.is_empty());
        for of in 0..10_000 {
            if directory.outgoing.front() == Some(&ToDaemon::LookUp { rank: 3, of }) {
                assert_eq!(directory.turn(&link), None);
            }
            assert_eq!(received(&daemon), Some(ToDaemon::LookUp { rank: 3, of }));
        }
        assert!(directory.outgoing.is_empty() && !directory.is_idle());
    }

    #[test]
    fn a_late_answer_is_found_by_rare_looks() {
        let (link, daemon) = line();
        let mut directory = Directory::default();
        directory.request_record(3, 5);
        for _ in 0..10 * EAGER_TURNS {
            assert_eq!(directory.turn(&link), None);
        }
        let why = "it has ended".to_owned();
        send(&daemon, &ToRank::NoRecord { rank: 5, why });
        let turns = (0..=EAGER_TURNS).find_map(|_| directory.turn(&link));
        assert_eq!(
            turns,
            Some(DaemonEvent::NoRecord(5, "it has ended".to_owned()))
        );
    }

    #[test]
    fn a_nap_is_followed_by_a_look() {
        let (link, daemon) = line();
        let mut directory = Directory::default();
        directory.request_record(3, 5);
        for _ in 0..EAGER_TURNS {
            assert_eq!(directory.turn(&link), None);
        }
        let (rank, answer) = (5, record(5));
        send(
            &daemon,
            &ToRank::Record {
                rank,
                record: answer,
            },
        );
        assert_eq!(directory.turn(&link), None, "looks are rare now");
        directory.sleep_limit(Instant::now());
        assert_eq!(
            directory.turn(&link),
            Some(DaemonEvent::Record(5, record(5)))
        );
    }

    #[test]
    fn naps_grow_with_the_wait_and_an_idle_directory_has_no_say() {
        let mut directory = Directory::default();
        let start = Instant::now();
        assert_eq!(directory.sleep_limit(start), Duration::MAX);
        directory.request_record(3, 5);
        assert_eq!(directory.sleep_limit(start), SHORTEST_SLEEP);
        let later = start + Duration::from_millis(8);
        assert_eq!(directory.sleep_limit(later), Duration::from_millis(1));
        let much_later = start + Duration::from_secs(60);
        assert_eq!(directory.sleep_limit(much_later), LONGEST_SLEEP);
    }

    #[test]
    fn the_end_of_the_daemon_is_news() {
        let (link, daemon) = line();
        let mut directory = Directory::default();
        assert_eq!(directory.receive(&link), None);
        drop(daemon);
        assert_eq!(directory.receive(&link), Some(DaemonEvent::End));
    }
}
