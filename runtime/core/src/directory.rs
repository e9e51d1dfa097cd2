// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the ranks of the job are found on a network: what this process tells the daemon about itself, and what it asks
//! when the transport first wants to reach a peer. Nothing waits here: what the socket does not take now is said in a later
//! turn of the progress loop, and answers are looked for there.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wireup::{Record, ToDaemon, ToRank};

use crate::boot::{ControlInput, DaemonLink};

/// What is to be said and heard.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// What the socket has not taken yet; at most a record, a question about each peer, a remark, and that this process is quiet.
    unsaid: VecDeque<ToDaemon>,
    /// Questions without an answer.
    open: u32,
    /// Turns since something was asked or heard.
    turns: u32,
    /// When that was, as far as anybody wanted to know.
    since: Option<Instant>,
}

/// A message of the daemon about other processes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DirectoryNews {
    /// Where a rank is found.
    Record(u32, Record),
    /// That rank is not to be found, for this reason.
    NoRecord(u32, String),
    /// Everything that any process has sent has arrived.
    AllQuiet,
    /// A rank has failed, for this reason, and the others go on.
    Lost(u32, String),
    /// The daemon is gone.
    End,
}

impl Directory {
    /// Tells where this process is found.
    pub(crate) fn publish(&mut self, rank: u32, record: Record) {
        self.unsaid.push_back(ToDaemon::Publish { rank, record });
    }

    /// Asks where another rank is found; once for each.
    pub(crate) fn ask(&mut self, rank: u32, of: u32) {
        self.unsaid.push_back(ToDaemon::LookUp { rank, of });
        self.open += 1;
        self.stir();
    }

    /// Says what the user should know once of the job.
    pub(crate) fn remark(&mut self, rank: u32, words: String) {
        self.unsaid.push_back(ToDaemon::Remark { rank, words });
    }

    /// Says that everything this process has sent over a network has arrived.
    pub(crate) fn say_quiet(&mut self, rank: u32) {
        self.unsaid.push_back(ToDaemon::Quiet { rank });
        self.open += 1;
        self.stir();
    }

    /// Whether there is nothing to say and nothing to wait for.
    pub(crate) fn is_idle(&self) -> bool {
        self.open == 0 && self.unsaid.is_empty()
    }

    /// A turn of the progress loop: says what is to be said and takes what was said, if anything is expected. A long wait is
    /// for a rank that has not come to `MPI_Init`, and looks are rare then.
    pub(crate) fn turn(&mut self, link: &DaemonLink) -> Option<DirectoryNews> {
        while self.unsaid.front().is_some_and(|words| link.try_say(words)) {
            self.unsaid.pop_front();
        }
        if self.open == 0 {
            return None;
        }
        self.turns = self.turns.wrapping_add(1);
        if self.turns > EAGER_TURNS && !self.turns.is_multiple_of(EAGER_TURNS) {
            return None;
        }
        self.hear(link)
    }

    /// The next thing that the daemon said, whether anything is expected or not.
    pub(crate) fn hear(&mut self, link: &DaemonLink) -> Option<DirectoryNews> {
        let news = match link.hear() {
            ControlInput::Words(ToRank::Record { rank, record }) => {
                DirectoryNews::Record(rank, record)
            }
            ControlInput::Words(ToRank::NoRecord { rank, why }) => {
                DirectoryNews::NoRecord(rank, why)
            }
            ControlInput::Words(ToRank::AllQuiet) => DirectoryNews::AllQuiet,
            // Nobody asked for these.
            ControlInput::Words(ToRank::Lost { rank, why }) => {
                return Some(DirectoryNews::Lost(rank, why));
            }
            ControlInput::End => return Some(DirectoryNews::End),
            ControlInput::Words(_) | ControlInput::Nothing => return None,
        };
        self.open = self.open.saturating_sub(1);
        self.stir();
        Some(news)
    }

    /// How long the process may sleep: nobody wakes it for what the daemon says. After that it looks.
    pub(crate) fn patience(&mut self, now: Instant) -> Duration {
        if self.is_idle() {
            return Duration::MAX;
        }
        self.turns = 0;
        let since = *self.since.get_or_insert(now);
        ((now - since) / 8).clamp(SHORTEST_NAP, LONGEST_NAP)
    }

    fn stir(&mut self) {
        (self.turns, self.since) = (0, None);
    }
}

/// Turns in which every one looks; later one in so many.
const EAGER_TURNS: u32 = 64;
/// Between two looks of one who sleeps: at first, and after a long wait.
const SHORTEST_NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::OwnedFd;
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

    /// A line to a daemon, and the daemon's end of it.
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

    /// What the daemon hears next.
    fn heard(daemon: &OwnedFd) -> Option<ToDaemon> {
        let mut bytes = [0; wireup::MAX_DATAGRAM_BYTES];
        let (length, _) = rustix::net::recv(daemon, &mut bytes[..], RecvFlags::empty()).ok()?;
        ToDaemon::decode(&bytes[..length]).ok()
    }

    fn say(daemon: &OwnedFd, words: &ToRank) {
        rustix::net::send(daemon, &words.encode(), SendFlags::empty()).unwrap();
    }

    #[test]
    fn what_is_asked_is_said_in_a_turn_and_the_answer_heard_in_a_later_one() {
        let (link, daemon) = line();
        let mut directory = Directory::default();
        assert!(directory.is_idle());
        directory.publish(3, record(3));
        directory.ask(3, 5);
        assert!(!directory.is_idle());
        assert_eq!(directory.turn(&link), None);
        let record_of_3 = record(3);
        assert_eq!(
            heard(&daemon),
            Some(ToDaemon::Publish {
                rank: 3,
                record: record_of_3
            })
        );
        assert_eq!(heard(&daemon), Some(ToDaemon::LookUp { rank: 3, of: 5 }));
        let (rank, answer) = (5, record(5));
        say(
            &daemon,
            &ToRank::Record {
                rank,
                record: answer,
            },
        );
        assert_eq!(
            directory.turn(&link),
            Some(DirectoryNews::Record(5, record(5)))
        );
        assert!(directory.is_idle());
    }

    #[test]
    fn a_remark_is_said_and_nobody_waits_for_an_answer() {
        let (link, daemon) = line();
        let mut directory = Directory::default();
        let words = "tcp carries it".to_owned();
        directory.remark(3, words.clone());
        assert!(!directory.is_idle());
        assert_eq!(directory.turn(&link), None);
        assert_eq!(heard(&daemon), Some(ToDaemon::Remark { rank: 3, words }));
        assert!(directory.is_idle());
    }

    #[test]
    fn a_daemon_that_does_not_read_stops_nobody() {
        let (link, daemon) = line();
        let mut directory = Directory::default();
        for of in 0..10_000 {
            directory.ask(3, of);
        }
        assert_eq!(directory.turn(&link), None);
        assert!(!directory.unsaid.is_empty());
        for of in 0..10_000 {
            if directory.unsaid.front() == Some(&ToDaemon::LookUp { rank: 3, of }) {
                assert_eq!(directory.turn(&link), None);
            }
            assert_eq!(heard(&daemon), Some(ToDaemon::LookUp { rank: 3, of }));
        }
        assert!(directory.unsaid.is_empty() && !directory.is_idle());
    }

    #[test]
    fn a_late_answer_is_found_by_rare_looks() {
        let (link, daemon) = line();
        let mut directory = Directory::default();
        directory.ask(3, 5);
        for _ in 0..10 * EAGER_TURNS {
            assert_eq!(directory.turn(&link), None);
        }
        let why = "it has ended".to_owned();
        say(&daemon, &ToRank::NoRecord { rank: 5, why });
        let turns = (0..=EAGER_TURNS).find_map(|_| directory.turn(&link));
        assert_eq!(
            turns,
            Some(DirectoryNews::NoRecord(5, "it has ended".to_owned()))
        );
    }

    #[test]
    fn a_nap_is_followed_by_a_look() {
        let (link, daemon) = line();
        let mut directory = Directory::default();
        directory.ask(3, 5);
        for _ in 0..EAGER_TURNS {
            assert_eq!(directory.turn(&link), None);
        }
        let (rank, answer) = (5, record(5));
        say(
            &daemon,
            &ToRank::Record {
                rank,
                record: answer,
            },
        );
        assert_eq!(directory.turn(&link), None, "looks are rare now");
        directory.patience(Instant::now());
        assert_eq!(
            directory.turn(&link),
            Some(DirectoryNews::Record(5, record(5)))
        );
    }

    #[test]
    fn naps_grow_with_the_wait_and_an_idle_directory_has_no_say() {
        let mut directory = Directory::default();
        let start = Instant::now();
        assert_eq!(directory.patience(start), Duration::MAX);
        directory.ask(3, 5);
        assert_eq!(directory.patience(start), SHORTEST_NAP);
        let later = start + Duration::from_millis(8);
        assert_eq!(directory.patience(later), Duration::from_millis(1));
        let much_later = start + Duration::from_secs(60);
        assert_eq!(directory.patience(much_later), LONGEST_NAP);
    }

    #[test]
    fn the_end_of_the_daemon_is_news() {
        let (link, daemon) = line();
        let mut directory = Directory::default();
        assert_eq!(directory.hear(&link), None);
        drop(daemon);
        assert_eq!(directory.hear(&link), Some(DirectoryNews::End));
    }
}
