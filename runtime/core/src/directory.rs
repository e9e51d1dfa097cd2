// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exchanges the network address records of ranks with the daemon. This process publishes its own record, and requests
//! the record of a peer when the transport first needs to reach that peer. Nothing blocks here: messages for which the
//! socket has no room are sent in a later turn of the progress loop, which also polls for replies.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wireup::{Record, ToDaemon, ToRank};

use crate::boot::{ControlInput, DaemonLink};

/// Messages to the daemon and outstanding requests.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Messages for which the socket had no room yet: at most a record, a request for each peer, remarks, and the
    /// report of quiescence.
    outgoing: VecDeque<ToDaemon>,
    /// Number of requests without a reply.
    open: u32,
    /// Number of turns since the last request or reply, or since the process last prepared to sleep.
    turns: u32,
    /// Time of the last request or reply; set when it is first needed.
    since: Option<Instant>,
}

/// A message from the daemon about other processes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DaemonEvent {
    /// The address record of a rank.
    Record(u32, Record),
    /// The rank has no address record, for this reason.
    NoRecord(u32, String),
    /// Everything that any process has sent has arrived.
    AllQuiet,
    /// The rank has failed, for this reason, and the job continues.
    Lost(u32, String),
    /// The daemon has closed the connection.
    End,
}

impl Directory {
    /// Publishes the address record of this process.
    pub(crate) fn publish(&mut self, rank: u32, record: Record) {
        self.outgoing.push_back(ToDaemon::Publish { rank, record });
    }

    /// Requests the address record of rank `of`. To be called at most once for each rank.
    pub(crate) fn request_record(&mut self, rank: u32, of: u32) {
        self.outgoing.push_back(ToDaemon::LookUp { rank, of });
        self.open += 1;
        self.reset_backoff();
    }

    /// Sends a remark to the daemon. The launcher prints only the first remark of a job.
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

    /// A turn of the progress loop: sends queued messages, and polls for a reply if one is expected. After
    /// [`EAGER_TURNS`] turns without a reply, polls only in every `EAGER_TURNS`-th turn: most waits that are so long
    /// are for a rank that has not called `MPI_Init` yet.
    pub(crate) fn turn(&mut self, link: &DaemonLink) -> Option<DaemonEvent> {
        while self
            .outgoing
            .front()
            .is_some_and(|message| link.try_send(message))
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

    /// The next message from the daemon, whether or not one is expected.
    pub(crate) fn receive(&mut self, link: &DaemonLink) -> Option<DaemonEvent> {
        let event = match link.receive() {
            ControlInput::Message(ToRank::Record { rank, record }) => {
                DaemonEvent::Record(rank, record)
            }
            ControlInput::Message(ToRank::NoRecord { rank, why }) => {
                DaemonEvent::NoRecord(rank, why)
            }
            ControlInput::Message(ToRank::AllQuiet) => DaemonEvent::AllQuiet,
            // A `Lost` message is not a reply to a request.
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

    /// Maximum time that the process may sleep before it polls again, because a message of the daemon does not wake it.
    /// If no reply is expected and nothing is queued, there is no limit.
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

/// In a wait for a reply, each of the first turns polls, up to this number of turns. After that, only every turn whose
/// number is a multiple of this constant does.
const EAGER_TURNS: u32 = 64;
/// The limit of a sleep between two polls grows from the first to the second of these values in a long wait.
const SHORTEST_SLEEP: Duration = Duration::from_micros(50);
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::OwnedFd;
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

    /// A connection to a daemon: the socket of the process, and the socket of the daemon.
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

    /// The next message to the daemon.
    fn received(daemon: &OwnedFd) -> Option<ToDaemon> {
        let mut bytes = [0; wireup::MAX_DATAGRAM_BYTES];
        let (length, _) = rustix::net::recv(daemon, &mut bytes[..], RecvFlags::empty()).ok()?;
        ToDaemon::decode(&bytes[..length]).ok()
    }

    fn send(daemon: &OwnedFd, message: &ToRank) {
        rustix::net::send(daemon, &message.encode(), SendFlags::empty()).unwrap();
    }

    #[test]
    fn directory_sends_requests_in_one_turn_and_receives_replies_later() {
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
    fn a_remark_is_sent_without_waiting_for_a_reply() {
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
    fn a_daemon_that_does_not_read_does_not_block() {
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
    fn a_late_reply_is_found_by_infrequent_polls() {
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
    fn the_daemon_is_polled_after_a_sleep() {
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
        assert_eq!(directory.turn(&link), None, "polls are infrequent now");
        directory.sleep_limit(Instant::now());
        assert_eq!(
            directory.turn(&link),
            Some(DaemonEvent::Record(5, record(5)))
        );
    }

    #[test]
    fn sleep_limit_grows_with_the_wait_and_is_unlimited_when_idle() {
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
    fn closed_daemon_connection_is_reported() {
        let (link, daemon) = line();
        let mut directory = Directory::default();
        assert_eq!(directory.receive(&link), None);
        drop(daemon);
        assert_eq!(directory.receive(&link), Some(DaemonEvent::End));
    }
}
