// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles the messages of ranks on their control sockets, and connections that request the segment.

use super::control::{self, Received};
use super::rank::{LocalRank, RankPhase};
use super::records::RecordMessage;
use super::{Daemon, Token, interest};
use crate::failure::FailureCause;
use crate::link::{self, NodeEvent};
use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use wireup::{DecodeError, MAX_RECORD_BYTES, ToDaemon, ToRank};

/// Maximum number of messages that are received from a rank before other events are handled. Without a limit, other
/// ranks might not be served. The limit is more than a socket can buffer.
const MOST_MESSAGES_AT_ONCE: u32 = 4096;
/// Maximum length of a remark, in characters.
const LONGEST_REMARK: usize = 1000;
/// Maximum length of a function name, in characters.
const LONGEST_NAME: usize = 64;

impl Daemon {
    /// Receives the pending messages of a rank, at most [`MOST_MESSAGES_AT_ONCE`].
    pub(super) fn receive_messages(&mut self, local: u32) {
        for _ in 0..MOST_MESSAGES_AT_ONCE {
            let Some(control) = self
                .ranks
                .get(local as usize)
                .and_then(|rank| rank.control.as_ref())
            else {
                return;
            };
            match control::receive(control.as_fd()) {
                Received::Message(message, sender) => self.handle_message(local, message, sender),
                Received::Invalid(why) => self.handle_invalid(local, why),
                Received::Empty => return,
                Received::Closed => return self.close_control(local),
            }
        }
    }

    fn close_control(&mut self, local: u32) {
        let control = self
            .ranks
            .get_mut(local as usize)
            .and_then(|rank| rank.control.take());
        if let Some(control) = control {
            let _ = self.poller.delete(&control);
        }
        self.records.cancel_queries(local);
    }

    fn handle_message(&mut self, local: u32, message: ToDaemon, sender: u32) {
        match message {
            ToDaemon::Hello { publishes, .. } => {
                self.handle_hello(local, sender);
                let notified = self.records.initialized(local, publishes);
                self.send_replies_to(notified);
            }
            ToDaemon::Finalized { .. } => self.handle_finalized(local),
            ToDaemon::Publish { record, .. } => {
                let notified = self.records.published(local, record);
                self.send_replies_to(notified);
            }
            ToDaemon::LookUp { of, .. } => self.look_up(local, of),
            ToDaemon::Quiet { .. } => {
                let notified = self.records.quiet(local);
                self.send_replies_to(notified);
            }
            ToDaemon::Abort { code, message, .. } => {
                self.handle_library_end(local, FailureCause::Abort { code, message });
            }
            ToDaemon::Fatal { code, message, .. } => {
                self.handle_library_end(local, FailureCause::Fatal { code, message });
            }
            ToDaemon::Missing { function, .. } => self.handle_missing(local, function),
            ToDaemon::Remark { text, .. } => self.handle_remark(&text),
            ToDaemon::AskSegment { job, .. } => self.send_segment_to_rank(local, job),
            _ => (),
        }
    }

    /// The library of a rank ends the job: reports the failure of the rank to the front.
    pub(super) fn handle_library_end(&mut self, local: u32, how: FailureCause) {
        let rank = self.ranks.get(local as usize);
        if rank.is_none_or(|rank| rank.reported) {
            return;
        }
        // Output from before the message is forwarded first.
        self.streams
            .drain(local, &mut self.scratch, &mut self.front.outbox);
        self.report(local, how, false);
    }

    /// A rank has called a function that its library does not have. Text that is not a function name is ignored.
    fn handle_missing(&mut self, local: u32, function: String) {
        let is_name = function.len() <= LONGEST_NAME
            && function
                .bytes()
                .all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
        if let Some(rank) = self.ranks.get_mut(local as usize).filter(|_| is_name) {
            rank.missing = function;
        }
    }

    /// Forwards the first remark of any rank of this node to the front, as one line of bounded length. All later
    /// remarks are ignored, whatever their text: the user sees only one remark per job.
    fn handle_remark(&mut self, message: &str) {
        if std::mem::replace(&mut self.has_remarked, true) {
            return;
        }
        let characters = message.chars().take(LONGEST_REMARK);
        let plain = characters.map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        });
        let message = plain.collect();
        self.send_event(&NodeEvent::Remark(message));
    }

    fn handle_hello(&mut self, local: u32, sender: u32) {
        let Some(rank) = self.ranks.get_mut(local as usize) else {
            return;
        };
        let is_running = |pid: u32| kill(Pid::from_raw(pid.cast_signed()), None).is_ok();
        let before = rank.mpi_pid;
        let second = rank.phase == RankPhase::InMpi && before != sender;
        if second && !rank.reported {
            let how = if is_running(before) {
                FailureCause::Twice { pid: sender }
            } else {
                FailureCause::Deserted { pid: before }
            };
            return self.report(local, how, false);
        }
        let first_time = rank.mpi_pid == 0;
        rank.phase = RankPhase::InMpi;
        self.watch_mpi_process(local, sender);
        if first_time {
            self.report_init_phases();
        }
        self.start_preference(local, sender);
        self.probes.rank_entered_mpi();
        self.standstill.rank_entered_mpi();
        self.end_if_rank_missing();
    }

    fn handle_finalized(&mut self, local: u32) {
        let Some(rank) = self.ranks.get_mut(local as usize) else {
            return;
        };
        rank.phase = RankPhase::Finalized;
        rank.finalized += 1;
        rank.deserted_at = None;
        if let Some(watch) = rank.watch.take() {
            let _ = self.poller.delete(&watch);
        }
        self.end_preference(local);
        let notified = self.records.finalized(local);
        self.send_replies_to(notified);
        if self.ranks.iter().all(|rank| rank.finalized == 1) {
            self.reached(link::NodePhase::AllFinalized);
        }
    }

    /// Handles bytes that are not a message. They are ignored, except a record that is too long: the user is informed,
    /// since other ranks would wait for the record.
    fn handle_invalid(&mut self, local: u32, why: Option<DecodeError>) {
        let (Some(DecodeError::Record { bytes }), Some(rank)) =
            (why, self.ranks.get_mut(local as usize))
        else {
            return;
        };
        if std::mem::replace(&mut rank.record_refused, true) {
            return;
        }
        let rank = self.job.ranks[local as usize].rank;
        self.notice(format!(
            "rank {rank} has published a network address of {bytes} bytes, expected at most {MAX_RECORD_BYTES}; it \
             is ignored: use the rmpiexec that was installed with the library of the program"
        ));
    }

    fn look_up(&mut self, local: u32, of: u32) {
        match self.records.request(local, of) {
            Some(true) => self.send_replies_to(vec![local]),
            Some(false) => self.send_record_messages(),
            None => self.reply_no_such_rank(local, of),
        }
    }

    /// Sends the pending messages of the record directory to the front.
    fn send_record_messages(&mut self) {
        for word in self.records.take_messages() {
            self.send_event(&match word {
                RecordMessage::Watch(rank) => NodeEvent::Watch(rank),
                RecordMessage::Location(of) => NodeEvent::Location(of),
                RecordMessage::Quiet(round) => NodeEvent::Quiet(round),
            });
        }
    }

    /// Handles [`Order::Watch`](crate::link::Order::Watch): another node needs the location of a rank of this node.
    pub(super) fn watch(&mut self, rank: u32) {
        self.records.watch(rank);
        self.send_record_messages();
    }

    /// Replies to a request for a rank that does not exist. If the socket is full, the reply is lost, which is
    /// acceptable because a correct library sends no such request.
    fn reply_no_such_rank(&mut self, local: u32, rank: u32) {
        let control = self.ranks.get(local as usize);
        let Some(control) = control.and_then(|rank| rank.control.as_ref()) else {
            return;
        };
        let size = self.job.size;
        let why = format!("there is no rank {rank}: the job has {size}, which count from 0");
        let _ = control::send_message(control.as_fd(), &ToRank::NoRecord { rank, why });
    }

    /// Called after a change of records: sends the pending messages about records to the front, and the pending replies
    /// to these ranks.
    pub(super) fn send_replies_to(&mut self, requesters: Vec<u32>) {
        self.send_record_messages();
        for requester in requesters {
            self.answer(requester);
        }
    }

    /// Sends pending replies to a rank, as long as its socket has room.
    pub(super) fn answer(&mut self, local: u32) {
        let Some(rank) = self.ranks.get_mut(local as usize) else {
            return;
        };
        let Some(control) = &rank.control else { return };
        let mut full = false;
        while let Some(word) = self.records.answer(local) {
            match control::send_message(control.as_fd(), &word) {
                Ok(()) => self.records.sent(local),
                Err(Errno::EAGAIN) => {
                    full = true;
                    break;
                }
                // The socket is closed.
                Err(_) => self.records.cancel_queries(local),
            }
        }
        if std::mem::replace(&mut rank.wants_room, full) != full {
            let also = if full {
                EpollFlags::EPOLLOUT
            } else {
                EpollFlags::empty()
            };
            let mut event = interest(EpollFlags::EPOLLIN | also, Token::Control(local));
            let _ = self.poller.modify(control, &mut event);
        }
    }

    /// The local number of a rank of this node.
    pub(super) fn local_of(&self, rank: u32) -> Option<u32> {
        let local = self.job.ranks.iter().position(|placed| placed.rank == rank);
        local.and_then(|local| u32::try_from(local).ok())
    }

    fn report_init_phases(&mut self) {
        let initialized = self.ranks.iter().filter(|rank| rank.mpi_pid != 0).count();
        if initialized == 1 {
            self.reached(link::NodePhase::FirstInMpi);
        }
        if initialized == self.job.ranks.len() {
            self.reached(link::NodePhase::AllInMpi);
        }
    }

    /// Sends the segment to a rank that still has its control socket but not the segment.
    fn send_segment_to_rank(&mut self, local: u32, job: u64) {
        let segment = self.segment_for(local);
        let Some(control) = self
            .ranks
            .get(local as usize)
            .and_then(|rank| rank.control.as_ref())
        else {
            return;
        };
        if job != self.job.keys.job {
            return control::refuse(control.as_fd(), "the key is that of another job");
        }
        match segment {
            // If the socket is full, the rank repeats its request.
            Ok(segment) => drop(control::send_segment(control.as_fd(), &segment)),
            Err(message) => control::refuse(control.as_fd(), &message),
        }
    }

    /// The segment of the MPI program that a rank starts now. The first programs of all ranks share a segment, the
    /// second programs share another, and so on, because the contents of a used segment are invalid for the next
    /// program.
    fn segment_for(&mut self, local: u32) -> Result<Rc<OwnedFd>, String> {
        let finalized = |rank: &LocalRank| rank.finalized;
        let round = self.ranks.get(local as usize).map_or(0, finalized);
        if round == 0 {
            return Ok(Rc::clone(&self.spawn_context.segment));
        }
        let alive = self.ranks.iter().filter(|rank| rank.alive);
        let oldest = alive.map(finalized).min().unwrap_or(round);
        self.later_segments.retain(|of, _| *of >= oldest);
        if let Some(segment) = self.later_segments.get(&round) {
            return Ok(Rc::clone(segment));
        }
        let segment = Rc::new(node_segment::make(
            self.job.keys.job,
            self.job.local_size(),
        )?);
        self.later_segments.insert(round, Rc::clone(&segment));
        Ok(segment)
    }

    /// Ends the job if one rank runs its MPI program number N, and another rank has exited after at least one, but
    /// fewer than N programs. The first rank would wait for the other one for ever.
    pub(super) fn end_if_rank_missing(&mut self) {
        let running = |rank: &LocalRank| rank.phase == RankPhase::InMpi;
        let newest = (0..)
            .zip(&self.ranks)
            .filter(|(_, rank)| running(rank))
            .max_by_key(|(_, rank)| rank.finalized);
        let Some((ahead, round)) = newest.map(|(local, rank)| (local, rank.finalized)) else {
            return;
        };
        let missing = self.ranks.iter().position(|rank| {
            !rank.alive && rank.phase == RankPhase::Finalized && rank.finalized <= round
        });
        let (Some(missing), None) = (missing, self.termination.is_killing()) else {
            return;
        };
        let name = |local: usize| self.job.ranks[local].rank;
        let message = format!(
            "rank {} has started its MPI program number {}, but rank {} has ended after {}: all ranks must start as many",
            name(ahead),
            round + 1,
            name(missing),
            self.ranks[missing].finalized
        );
        self.broken(message);
    }

    /// Accepts a connection, if the peer's user is this user or root.
    pub(super) fn admit(&mut self) {
        let Ok((stream, _)) = self.listener.accept() else {
            return;
        };
        let ours = nix::unistd::geteuid().as_raw();
        if control::user_of(&stream).is_none_or(|user| user != ours && user != 0) {
            return control::refuse(stream.as_fd(), "this job belongs to another user");
        }
        let most = self.ranks.len() * 2 + 16;
        if self.pending_streams.len() >= most || control::name_senders(&stream).is_err() {
            return control::refuse(stream.as_fd(), "too many requests of processes at a time");
        }
        self.pending_count = self.pending_count.wrapping_add(1);
        let number = self.pending_count;
        let event = interest(EpollFlags::EPOLLIN, Token::PendingStream(number));
        if self.poller.add(&stream, event).is_ok() {
            self.pending_streams.insert(number, stream);
        }
    }

    /// Handles a request on pending connection `number`, which is not yet the control socket of a rank. If the request
    /// is for the segment and names a rank, the segment is sent, and the connection becomes the rank's control socket.
    pub(super) fn receive_from_pending(&mut self, number: u32) {
        let Some(stream) = self.pending_streams.get(&number) else {
            return;
        };
        let (rank, job) = match control::receive(stream.as_fd()) {
            Received::Empty => return,
            Received::Message(ToDaemon::AskSegment { rank, job }, _) => (rank, job),
            Received::Message(ToDaemon::AskMemory { rank, job }, _) => {
                return self.serve_memory(number, rank, job);
            }
            _ => return self.dismiss(number, "expected a request for the segment"),
        };
        let local = self.local_of(rank);
        let local = local.filter(|local| (*local as usize) < self.ranks.len());
        let Some(local) = local.filter(|_| job == self.job.keys.job) else {
            return self.dismiss(
                number,
                "there is no such rank, or the key is that of another job",
            );
        };
        // The previous program may have sent its last messages on the old socket.
        self.receive_messages(local);
        let segment = match self.segment_for(local) {
            Ok(segment) => segment,
            Err(message) => return self.dismiss(number, &message),
        };
        let Some(stream) = self.pending_streams.get(&number) else {
            return;
        };
        if control::send_segment(stream.as_fd(), &segment).is_err() {
            return self.dismiss(number, "the segment could not be sent");
        }
        let Some(stream) = self.pending_streams.remove(&number) else {
            return;
        };
        let stream = OwnedFd::from(stream);
        self.close_control(local);
        let mut event = interest(EpollFlags::EPOLLIN, Token::Control(local));
        let _ = self.poller.modify(&stream, &mut event);
        let rank = &mut self.ranks[local as usize];
        (rank.control, rank.wants_room) = (Some(stream), false);
    }

    pub(super) fn dismiss(&mut self, number: u32, why: &str) {
        if let Some(stream) = self.pending_streams.remove(&number) {
            control::refuse(stream.as_fd(), why);
            let _ = self.poller.delete(&stream);
        }
    }
}
