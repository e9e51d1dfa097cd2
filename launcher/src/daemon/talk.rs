// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ranks say on their control sockets, and those who come to ask for the segment.

use super::control::{self, Received};
use super::rank::Phase;
use super::{Daemon, Token, interest};
use crate::failure::How;
use nix::sys::epoll::EpollFlags;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use pmi::ToDaemon;
use std::os::fd::{AsFd, OwnedFd};

impl Daemon {
    /// Takes all that a rank has said.
    pub(super) fn listen_to(&mut self, local: u32) {
        loop {
            let Some(control) = self
                .ranks
                .get(local as usize)
                .and_then(|rank| rank.control.as_ref())
            else {
                return;
            };
            match control::receive(control.as_fd()) {
                Received::Message(message, sender) => self.hear(local, message, sender),
                Received::Nonsense => (),
                Received::Nothing => return,
                Received::Closed => return self.hang_up(local),
            }
        }
    }

    fn hang_up(&mut self, local: u32) {
        let control = self
            .ranks
            .get_mut(local as usize)
            .and_then(|rank| rank.control.take());
        if let Some(control) = control {
            let _ = self.poller.delete(&control);
        }
    }

    fn hear(&mut self, local: u32, message: ToDaemon, sender: u32) {
        match message {
            ToDaemon::Hello { .. } => self.hear_hello(local, sender),
            ToDaemon::Finalized { .. } => self.hear_finalized(local),
            ToDaemon::Abort { code, message, .. } => {
                let rank = self.ranks.get(local as usize);
                if rank.is_some_and(|rank| !rank.reported) {
                    self.report(local, How::Abort { code, message }, false);
                }
            }
            ToDaemon::AskSegment { job, .. } => self.answer_rank(local, job),
            _ => (),
        }
    }

    fn hear_hello(&mut self, local: u32, sender: u32) {
        let Some(rank) = self.ranks.get_mut(local as usize) else {
            return;
        };
        let lives = |pid: u32| kill(Pid::from_raw(pid.cast_signed()), None).is_ok();
        let second = rank.phase == Phase::Greeted && rank.greeter != sender && lives(rank.greeter);
        if second && !rank.reported {
            return self.report(local, How::Twice { pid: sender }, false);
        }
        rank.phase = Phase::Greeted;
        self.watch_greeter(local, sender);
        self.probes.somebody_is_in_mpi();
    }

    fn hear_finalized(&mut self, local: u32) {
        let Some(rank) = self.ranks.get_mut(local as usize) else {
            return;
        };
        rank.phase = Phase::Finalized;
        rank.deserted_at = None;
        if let Some(watch) = rank.watch.take() {
            let _ = self.poller.delete(&watch);
        }
    }

    /// A rank that has kept its socket and lost the segment.
    fn answer_rank(&self, local: u32, job: u64) {
        let Some(control) = self
            .ranks
            .get(local as usize)
            .and_then(|rank| rank.control.as_ref())
        else {
            return;
        };
        if job == self.job.key {
            // One that does not take the answer will ask again.
            let _ = control::send_segment(control.as_fd(), &self.nest.segment);
        } else {
            control::refuse(control.as_fd(), "the key is that of another job");
        }
    }

    /// Lets one in who connects, if the user is ours.
    pub(super) fn admit(&mut self) {
        let Ok((visitor, _)) = self.listener.accept() else {
            return;
        };
        let ours = nix::unistd::geteuid().as_raw();
        if control::user_of(&visitor).is_none_or(|user| user != ours && user != 0) {
            return control::refuse(visitor.as_fd(), "this job belongs to another user");
        }
        let most = self.ranks.len() * 2 + 16;
        if self.visitors.len() >= most || control::name_senders(&visitor).is_err() {
            return control::refuse(visitor.as_fd(), "too many processes ask at a time");
        }
        self.visitor_count = self.visitor_count.wrapping_add(1);
        let number = self.visitor_count;
        let event = interest(EpollFlags::EPOLLIN, Token::Visitor(number));
        if self.poller.add(&visitor, event).is_ok() {
            self.visitors.insert(number, visitor);
        }
    }

    /// A visitor says which rank it is, and gets the segment; its connection is the rank's control socket then.
    pub(super) fn hear_visitor(&mut self, number: u32) {
        let Some(visitor) = self.visitors.get(&number) else {
            return;
        };
        let (rank, job) = match control::receive(visitor.as_fd()) {
            Received::Nothing => return,
            Received::Message(ToDaemon::AskSegment { rank, job }, _) => (rank, job),
            _ => return self.dismiss(number, "expected a request for the segment"),
        };
        let local = self.job.ranks.iter().position(|placed| placed.rank == rank);
        let local = local.filter(|local| *local < self.ranks.len());
        let Some(local) = local.filter(|_| job == self.job.key) else {
            return self.dismiss(
                number,
                "there is no such rank, or the key is that of another job",
            );
        };
        if control::send_segment(visitor.as_fd(), &self.nest.segment).is_err() {
            return self.dismiss(number, "the segment could not be sent");
        }
        let Some(visitor) = self.visitors.remove(&number) else {
            return;
        };
        let visitor = OwnedFd::from(visitor);
        let local = u32::try_from(local).unwrap_or(u32::MAX);
        self.hang_up(local);
        let mut event = interest(EpollFlags::EPOLLIN, Token::Control(local));
        let _ = self.poller.modify(&visitor, &mut event);
        self.ranks[local as usize].control = Some(visitor);
    }

    fn dismiss(&mut self, number: u32, why: &str) {
        if let Some(visitor) = self.visitors.remove(&number) {
            control::refuse(visitor.as_fd(), why);
            let _ = self.poller.delete(&visitor);
        }
    }
}
