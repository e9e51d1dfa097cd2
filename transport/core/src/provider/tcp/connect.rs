// SPDX-License-Identifier: MIT OR Apache-2.0
//! Establishing connections: this process connects to a peer (a *call*), or is connected to; then both prove their
//! identity (`proof.rs`), and join.
//!
//! If two processes call each other at the same time, the call of the process with precedence counts, provided that the
//! other process's system has recently accepted it. Then the other process gets the verdict
//! [`HandshakeVerdict::Yield`], and ends its own call when it joins on that call. If a peer joins a second time, the
//! later connection counts: the peer has noticed before this process that the earlier connection broke.

use std::io;
use std::net::{IpAddr, SocketAddr};

use session::Ack;

use super::active_open::{ActiveOpen, CONNECT_NS, ConnectStage};
use super::handshake_stream::HandshakeStream;
use super::links::{SockOwner, TcpLinkEvent, TcpLinks};
use super::peer::TcpConnection;
use super::proof::{HandshakeContext, HandshakeFault, HandshakeVerdict, Hello, Welcome};
use super::sockets::{Sock, Sockets};
use super::unproven::UnprovenConnection;
use super::{address, eviction, proof};

/// Why a handshake failed.
#[derive(Debug)]
pub(super) enum HandshakeRefusal {
    /// The connection ended.
    Io(io::Error),
    /// An invalid message.
    Fault(HandshakeFault),
    /// The other side rejects the connection, or is to be sent this verdict.
    Verdict(HandshakeVerdict),
    /// This peer has requested a further connection, which is refused for this reason.
    Rail(u32, &'static str),
}

impl From<io::Error> for HandshakeRefusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<HandshakeFault> for HandshakeRefusal {
    fn from(fault: HandshakeFault) -> Self {
        Self::Fault(fault)
    }
}

/// Calls by this process.
impl<S: Sockets> TcpLinks<S> {
    /// Starts to connect to a peer, unless it is connected, is being called, or is lost. If the peer's address is not
    /// known, requests the address instead.
    pub(super) fn call(&mut self, peer: u32) {
        let side = self.of(peer);
        if side.call.is_some() || side.line.is_some() || side.lost.is_some() {
            return;
        }
        if side.place.is_none() {
            if !std::mem::replace(&mut side.is_wanted, true) {
                self.wanted.push_back(peer);
            }
            return;
        }
        let now_ns = self.now_ns;
        let side = self.of(peer);
        side.call = side
            .place
            .as_ref()
            .map(|place| Box::new(ActiveOpen::new(&place.addresses(), now_ns)));
        if self.is_full() {
            self.calls.wait(peer);
        } else if self.calls.begin(peer, now_ns) {
            self.try_again(peer);
        }
    }

    /// As [`call`](Self::call), but the call waits at the end of the queue.
    pub(super) fn call_later(&mut self, peer: u32) {
        let now_ns = self.now_ns;
        let side = self.of(peer);
        let place = side.place.as_ref().filter(|_| side.call.is_none());
        match place.map(|place| ActiveOpen::new(&place.addresses(), now_ns)) {
            Some(call) => {
                side.call = Some(Box::new(call));
                self.calls.wait(peer);
            }
            None => self.call(peer),
        }
    }

    /// Starts the calls whose turn has come.
    pub(super) fn start_calls(&mut self) {
        let now_ns = self.now_ns;
        while !self.is_full()
            && let Some(peer) = self.calls.next(now_ns)
        {
            if let Some(call) = &mut self.of(peer).call {
                (call.since_ns, call.counted_ns) = (now_ns, now_ns);
            }
            self.try_again(peer);
        }
    }

    /// Ends the turn of a call. The call then waits for its next turn, or is set aside and waits only for the peer.
    /// Meanwhile it makes no further connections, and keeps those that the peer's system has accepted, at most one for
    /// each address. The number of connections that all such calls keep is limited by the limit of connections, and by
    /// a part of the descriptors: the program needs descriptors, too. At this limit the call keeps none.
    pub(super) fn put_off(&mut self, peer: u32) {
        let socks = |peer: u32| {
            let call = self.find(peer).and_then(|side| side.call.as_ref());
            call.map_or(0, |call| call.socks().count())
        };
        let waiting = self
            .calls
            .all()
            .filter(|one| !self.calls.is_under_way(*one));
        let kept: usize = waiting.map(socks).sum();
        let most = self.limits.lines.min(self.sockets.most_open() / KEPT_PART);
        let call = self.find(peer).and_then(|side| side.call.as_ref());
        if kept + call.map_or(0, |call| call.accepted().len()) > most {
            return self.release_connect(peer);
        }
        let call = self.of(peer).call.as_mut();
        let socks = call.map(|call| call.rest()).unwrap_or_default();
        socks.into_iter().for_each(|sock| self.close(sock));
        let call = self.of(peer).call.as_ref();
        match call.is_some_and(|call| call.may_stand_aside()) {
            true => self.calls.set_aside(peer),
            false => self.calls.wait(peer),
        }
    }

    /// Ends the turn of a call without keeping a connection: the descriptors are needed.
    pub(super) fn release_connect(&mut self, peer: u32) {
        let call = self.of(peer).call.as_mut();
        let socks = call.map(|call| call.release_all()).unwrap_or_default();
        socks.into_iter().for_each(|sock| self.close(sock));
        self.calls.wait(peer);
    }

    /// Queues a call again that was set aside, if it has connections to make now.
    fn requeue_if_useful(&mut self, peer: u32) {
        let call = self.find(peer).and_then(|side| side.call.as_ref());
        let has_to_do = call.is_some_and(|call| !call.may_stand_aside());
        if has_to_do && self.calls.is_aside(peer) {
            self.calls.wait(peer);
        }
    }

    /// Ends a call, and closes its connections except `but`.
    pub(super) fn end_call(&mut self, peer: u32, but: Option<Sock>) {
        let Some(call) = self.find_mut(peer).and_then(|side| side.call.take()) else {
            return;
        };
        self.calls.end(peer);
        for sock in call.socks().filter(|sock| Some(*sock) != but) {
            self.close(sock);
        }
    }

    /// Connects to those addresses of a peer that are due for a try, and ends connections that were not established in
    /// time.
    pub(super) fn try_again(&mut self, peer: u32) {
        let now_ns = self.now_ns;
        let call = self.find(peer).and_then(|side| side.call.as_ref());
        // This process may have polled late: a connection that has been established by now is continued, not ended.
        let late = call.map(|call| call.late(now_ns)).unwrap_or_default();
        late.into_iter()
            .for_each(|sock| self.continue_call(peer, sock));
        let call = self.find(peer).and_then(|side| side.call.as_ref());
        for index in 0..call.map_or(0, |call| call.tries.len()) {
            self.try_one(peer, index);
        }
    }

    /// Connects to one address.
    fn try_one(&mut self, peer: u32, index: usize) {
        let now_ns = self.now_ns;
        // The failure of another address may have ended the call's turn, or the call.
        if !self.calls.is_under_way(peer) {
            return;
        }
        let call = self.find_mut(peer).and_then(|side| side.call.as_mut());
        let Some(one) = call.and_then(|call| call.tries.get_mut(index)) else {
            return;
        };
        match &one.stage {
            ConnectStage::Failed { again_at_ns } if *again_at_ns <= now_ns => {}
            ConnectStage::Connecting { since_ns, .. } if since_ns + CONNECT_NS <= now_ns => {
                let old = one.fail("no answer".to_owned(), now_ns);
                old.into_iter().for_each(|sock| self.close(sock));
                return;
            }
            _ => return,
        }
        let address = one.address;
        let (stage, lacks) = match self.connect(peer, address) {
            Ok(sock) => {
                self.own(sock, SockOwner::Call(peer));
                (self.greeting(peer, sock, false), false)
            }
            Err(error) if eviction::is_without_descriptors(&error) => {
                let again_at_ns = now_ns + eviction::HOLD_NS;
                self.lack_descriptors();
                (ConnectStage::Failed { again_at_ns }, true)
            }
            Err(error) => return self.try_refused(peer, index, &error.into()),
        };
        let sock = stage.sock();
        match self.find_mut(peer).and_then(|side| side.call.as_mut()) {
            Some(call) => (call.tries[index].stage, call.lacks) = (stage, lacks),
            None => sock.into_iter().for_each(|sock| self.close(sock)),
        }
    }

    /// Starts to connect; if no descriptor is free, closes another connection first.
    fn connect(&mut self, peer: u32, address: SocketAddr) -> io::Result<Sock> {
        match self.sockets.connect(address) {
            Err(error) if eviction::is_without_descriptors(&error) && self.free_one(Some(peer)) => {
                self.sockets.connect(address)
            }
            connected => connected,
        }
    }

    pub(super) fn greeting(&mut self, peer: u32, sock: Sock, is_rail: bool) -> ConnectStage {
        let far = self.known.with(peer);
        let side = self.of(peer);
        let to = side.place.as_ref().map_or(0, |place| place.identity);
        let (attempt, welcomed) = if is_rail {
            (0, 0)
        } else {
            side.attempt = side.attempt.wrapping_add(1);
            (side.attempt, side.peer_attempt)
        };
        let hello = Hello {
            is_rail,
            from: far.source_number,
            to,
            attempt,
            welcomed,
            nonce: [self.sockets.random(), self.sockets.random()],
        };
        let mut stream = HandshakeStream::new(sock);
        stream.enqueue(&hello.to_bytes());
        ConnectStage::Connecting {
            stream,
            hello,
            since_ns: self.now_ns,
        }
    }

    /// Handles an event on a connection of a call.
    pub(super) fn continue_call(&mut self, peer: u32, sock: Sock) {
        let now_ns = self.now_ns;
        let Some(side) = self.find_mut(peer) else {
            return;
        };
        let call = side.call.as_mut();
        let Some((call, index)) = call
            .and_then(|call| Some((call.of_sock(sock)?, call)))
            .map(|(i, c)| (c, i))
        else {
            return;
        };
        let none = ConnectStage::Failed { again_at_ns: 0 };
        let stage = std::mem::replace(&mut call.tries[index].stage, none);
        let may_prove = call.proving.is_none_or(|proving| proving == index);
        let stepped = self.step(peer, stage, may_prove);
        let Some(call) = self.of(peer).call.as_mut() else {
            return;
        };
        match stepped {
            Ok(Stepped::At(stage)) => {
                call.has_come(index, stage, now_ns);
                self.requeue_if_useful(peer);
            }
            Ok(Stepped::Joined(Welcome { ack, rails, .. }, attempt)) => {
                let line = TcpConnection::new(sock, self.numbers.next(), Vec::new());
                let attempt = Some(attempt);
                self.join(peer, TcpConnection { attempt, ..line }, (ack, rails));
            }
            Err(HandshakeRefusal::Verdict(HandshakeVerdict::GivenUp)) => {
                self.close(sock);
                self.lose(
                    peer,
                    "it has given this process up, and reports the reason itself",
                );
            }
            Err(refusal) => {
                self.close(sock);
                self.complain_of_host(peer, index, &refusal);
                self.try_refused(peer, index, &refusal);
            }
        }
    }

    /// Warns that the called process is of another version: calling again does not help.
    fn complain_of_host(&mut self, peer: u32, index: usize, refusal: &HandshakeRefusal) {
        let HandshakeRefusal::Fault(HandshakeFault::Version(version)) = refusal else {
            return;
        };
        let side = self.of(peer);
        let call = side.call.as_ref();
        let Some(address) = call.map(|call| call.tries[index].address) else {
            return;
        };
        let host = side.place.as_ref().map_or("", |place| &*place.host.name);
        let message = format!(
            "rank {peer}{}{host} cannot be reached at {address}: it {}",
            if host.is_empty() { "" } else { " on host " },
            describe_version(*version)
        );
        if self.unproven.is_first_report(address.ip(), "version") {
            self.notices.complain(message);
        }
    }

    /// Marks one address of a peer as failed for this reason.
    fn try_refused(&mut self, peer: u32, index: usize, refusal: &HandshakeRefusal) {
        let refusals = self
            .of(peer)
            .call
            .as_ref()
            .map_or(0, |call| call.tries[index].refusals);
        self.try_failed(peer, index, &describe_refusal(refusal));
        // Nothing listens at that port, or a process other than the peer does.
        let is_not_there = match refusal {
            HandshakeRefusal::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
            HandshakeRefusal::Fault(HandshakeFault::Garbage | HandshakeFault::Key)
            | HandshakeRefusal::Verdict(HandshakeVerdict::NotMe) => true,
            _ => false,
        };
        let call = self.of(peer).call.as_mut();
        if let Some(call) = call.filter(|_| is_not_there) {
            call.note_refusal(index, refusals);
        }
    }

    /// Marks one address of a peer as failed; the try at another address may prove now.
    pub(super) fn try_failed(&mut self, peer: u32, index: usize, why: &str) {
        let now_ns = self.now_ns;
        let Some(call) = self.of(peer).call.as_mut() else {
            return;
        };
        call.tries[index].stage = ConnectStage::Failed { again_at_ns: 0 };
        call.tries[index].fail(why.to_owned(), now_ns);
        call.note_accepted(now_ns);
        let was_proving = call.proving.take_if(|proving| *proving == index);
        let greeted = |stage: &ConnectStage| matches!(stage, ConnectStage::Greeted { .. });
        let others = call.tries.iter().filter(|one| greeted(&one.stage));
        let others = others.filter_map(|one| one.stage.sock());
        let others: Vec<Sock> = others.filter(|_| was_proving.is_some()).collect();
        self.requeue_if_useful(peer);
        for sock in others {
            self.continue_call(peer, sock);
        }
    }

    pub(super) fn step(
        &mut self,
        peer: u32,
        stage: ConnectStage,
        may_prove: bool,
    ) -> Result<Stepped, HandshakeRefusal> {
        let sockets = &mut self.sockets;
        match stage {
            ConnectStage::Connecting {
                mut stream,
                hello,
                since_ns,
            } => {
                if !stream.push(sockets)? {
                    return Ok(Stepped::At(ConnectStage::Connecting {
                        stream,
                        hello,
                        since_ns,
                    }));
                }
                sockets.want_to_send(stream.sock, false);
                self.step(peer, ConnectStage::Greeted { stream, hello }, may_prove)
            }
            ConnectStage::Greeted { mut stream, hello } if !may_prove => {
                take_riddle_in(&mut stream, sockets)?;
                Ok(Stepped::At(ConnectStage::Greeted { stream, hello }))
            }
            ConnectStage::Greeted { mut stream, hello } => {
                let Some(riddle) = pull_first(&mut stream, sockets)? else {
                    return Ok(Stepped::At(ConnectStage::Greeted { stream, hello }));
                };
                let context = self.answer_riddle(peer, &riddle, hello, &mut stream)?;
                self.step(peer, ConnectStage::Proved { stream, context }, true)
            }
            ConnectStage::Proved {
                mut stream,
                context,
            } => {
                if !stream.push(sockets)? {
                    sockets.want_to_send(stream.sock, true);
                    return Ok(Stepped::At(ConnectStage::Proved { stream, context }));
                }
                sockets.want_to_send(stream.sock, false);
                let Some(welcome) = stream.pull(sockets)? else {
                    return Ok(Stepped::At(ConnectStage::Proved { stream, context }));
                };
                let welcome = context.of_welcome(&welcome)?;
                match welcome.verdict {
                    HandshakeVerdict::Joined => Ok(Stepped::Joined(welcome, context.hello.attempt)),
                    verdict => Err(HandshakeRefusal::Verdict(verdict)),
                }
            }
            ConnectStage::Failed { .. } => Ok(Stepped::At(stage)),
        }
    }

    /// Sends the proof of this process.
    fn answer_riddle(
        &mut self,
        peer: u32,
        riddle: &[u8; proof::RIDDLE_BYTES],
        hello: Hello,
        stream: &mut HandshakeStream,
    ) -> Result<HandshakeContext, HandshakeRefusal> {
        let (verdict, nonce) = proof::of_riddle(riddle)?;
        match verdict {
            HandshakeVerdict::Joined => {}
            // These verdicts come only after the proofs.
            HandshakeVerdict::GivenUp | HandshakeVerdict::NoRail => {
                return Err(HandshakeRefusal::Fault(HandshakeFault::Garbage));
            }
            verdict => return Err(HandshakeRefusal::Verdict(verdict)),
        }
        let keys = self.secrets.with(peer);
        let context = HandshakeContext { keys, hello, nonce };
        let rails = self.allowed_rails();
        let ack = match hello.is_rail {
            true => Ack::default(),
            false => self.of(peer).session.take_ack(),
        };
        stream.enqueue(&context.proof(ack, rails));
        Ok(context)
    }
}

/// All calls that are not in their turn keep, together, at most one in this many of the descriptors.
const KEPT_PART: usize = 4;

/// Progress of a call.
#[derive(Debug)]
pub(super) enum Stepped {
    At(ConnectStage),
    /// The peer has joined, on the attempt with this number.
    Joined(Welcome, u32),
}

/// Incoming connections.
impl<S: Sockets> TcpLinks<S> {
    /// Accepts the waiting connections.
    pub(super) fn accept_waiting(&mut self) {
        let now_ns = self.sockets.clock_ns();
        let mut has_taken = false;
        while self.unproven.has_room(now_ns) && !self.is_full() {
            match self.sockets.accept() {
                Ok(Some((sock, from))) => {
                    has_taken = true;
                    if let Some(caller) = self.unproven.take_for_another(now_ns) {
                        self.close(caller.stream.sock);
                        self.complain_of_many(&caller);
                    }
                    self.own(sock, SockOwner::Unproven);
                    self.unproven.add(sock, from, now_ns);
                }
                Ok(None) => return,
                Err(error) if eviction::is_without_descriptors(&error) => {
                    if has_taken {
                        // `accept` may fail in this way even if no further connection waits. If one waits, there is
                        // another event.
                        return;
                    }
                    if !self.free_one(None) {
                        self.lack_descriptors();
                        break;
                    }
                }
                Err(error) => {
                    let here = IpAddr::from([0, 0, 0, 0]);
                    if self.unproven.is_first_report(here, "accept") {
                        let message =
                            format!("a connection cannot be taken in: {error}; it is tried again");
                        self.notices.complain(message);
                    }
                    break;
                }
            }
        }
        self.is_crowded = !self.unproven.has_room(now_ns);
        let give_way_ns = self.unproven.replaceable_at_ns();
        let until_ns = give_way_ns.filter(|_| self.is_crowded);
        // The listeners are not watched until `shut_until_ns`: otherwise the kernel would report the waiting connection
        // again and again.
        self.shut_until_ns = Some(until_ns.unwrap_or(now_ns + SHUT_NS));
        self.sockets.watch_listeners(false);
    }

    /// Called when an unauthenticated connection has ended. If such connections have filled all places, waiting
    /// connections are now accepted soon, or immediately if many places are free.
    fn schedule_accept(&mut self) {
        let soon_ns = match self.unproven.has_much_room() {
            true => self.now_ns,
            false => self.now_ns + CROWD_NS,
        };
        if let Some(until_ns) = self.shut_until_ns.as_mut().filter(|_| self.is_crowded) {
            *until_ns = soon_ns.min(*until_ns);
            self.resume_accepting();
        }
    }

    /// Watches the listeners again after a pause; there is an event if a connection waits.
    pub(super) fn resume_accepting(&mut self) {
        let is_over = |until_ns: &u64| *until_ns <= self.now_ns;
        if self
            .shut_until_ns
            .take_if(|until_ns| is_over(until_ns))
            .is_some()
        {
            self.sockets.watch_listeners(true);
        }
    }

    /// Handles an event on an unauthenticated connection.
    pub(super) fn continue_unproven(&mut self, sock: Sock) {
        let Some(mut caller) = self.unproven.take(sock) else {
            return;
        };
        match self.listen(&mut caller) {
            Ok(None) => return self.unproven.put_back(caller),
            Ok(Some((peer, _, context))) if context.hello.is_rail => {
                self.welcome_rail(peer, &context, caller);
            }
            Ok(Some((peer, report, context))) => self.welcome(peer, report, &context, caller),
            Err(refusal) => {
                self.close(sock);
                self.complain_of(&caller, &refusal);
            }
        }
        self.schedule_accept();
    }

    /// Processes the caller's messages; once the caller is authenticated, returns the peer and the content of its
    /// proof.
    fn listen(
        &mut self,
        caller: &mut UnprovenConnection,
    ) -> Result<Option<(u32, HandshakeReport, HandshakeContext)>, HandshakeRefusal> {
        if caller.context.is_none() {
            let hello = match pull_first(&mut caller.stream, &mut self.sockets) {
                Ok(None) => return Ok(None),
                Ok(Some(hello)) => Hello::of(&hello),
                Err(HandshakeRefusal::Fault(fault)) => Err(fault),
                Err(refusal) => return Err(refusal),
            };
            let hello = match hello {
                Err(HandshakeFault::Version(version)) => {
                    // The RIDDLE contains the version of this process, so the caller can report the difference too.
                    caller
                        .stream
                        .enqueue(&proof::riddle(HandshakeVerdict::NotMe, [0; 2]));
                    caller.stream.push(&mut self.sockets)?;
                    return Err(HandshakeRefusal::Fault(HandshakeFault::Version(version)));
                }
                hello => hello?,
            };
            let peer = hello.from;
            if hello.to != self.identity || !self.known.may_be(peer) {
                caller
                    .stream
                    .enqueue(&proof::riddle(HandshakeVerdict::NotMe, [0; 2]));
                caller.stream.push(&mut self.sockets)?;
                return Err(HandshakeRefusal::Verdict(HandshakeVerdict::NotMe));
            }
            let nonce = [self.sockets.random(), self.sockets.random()];
            let keys = self.secrets.with(peer);
            caller
                .stream
                .enqueue(&proof::riddle(HandshakeVerdict::Joined, nonce));
            caller.context = Some((peer, HandshakeContext { keys, hello, nonce }));
        }
        if !caller.stream.push(&mut self.sockets)? {
            self.sockets.want_to_send(caller.stream.sock, true);
            return Ok(None);
        }
        self.sockets.want_to_send(caller.stream.sock, false);
        let proof = caller.stream.pull(&mut self.sockets)?;
        let (Some((peer, context)), Some(proof)) = (caller.context, proof) else {
            return Ok(None);
        };
        let report = context.of_proof(&proof)?;
        Ok(Some((peer, report, context)))
    }

    /// Joins an authenticated caller, or sends it the reason why not.
    fn welcome(
        &mut self,
        peer: u32,
        report: HandshakeReport,
        context: &HandshakeContext,
        mut caller: UnprovenConnection,
    ) {
        let (ack, rails) = report;
        let sock = caller.stream.sock;
        let (is_first, now_ns) = (self.known.with(peer).is_first, self.now_ns);
        let side = self.of(peer);
        let is_old = context
            .hello
            .attempt
            .wrapping_sub(side.peer_attempt)
            .cast_signed()
            <= 0;
        // The peer sent this HELLO before it welcomed the call that made the present connection.
        let is_stale =
            |attempt: u32| context.hello.welcomed.wrapping_sub(attempt).cast_signed() < 0;
        let has_crossed = side
            .line
            .as_ref()
            .and_then(|line| line.attempt)
            .is_some_and(is_stale);
        let is_promising = |call: &ActiveOpen| call.is_promising(now_ns);
        let calls = is_first && side.call.as_deref().is_some_and(is_promising);
        let verdict = if side.lost.is_some() {
            HandshakeVerdict::GivenUp
        } else if is_old || !side.may_have(ack.next) {
            HandshakeVerdict::Old
        } else if calls || has_crossed {
            HandshakeVerdict::Yield
        } else {
            HandshakeVerdict::Joined
        };
        if verdict != HandshakeVerdict::Joined {
            caller
                .stream
                .enqueue(&context.welcome(verdict, Ack::default(), 0));
            // If the verdict does not get through, the end of the connection has the same effect.
            _ = caller.stream.push(&mut self.sockets);
            return self.close(sock);
        }
        side.peer_attempt = context.hello.attempt;
        if self.hang_up(peer) {
            self.counts.broken.add(1);
        }
        let our_ack = self.of(peer).session.take_ack();
        let our_rails = if rails == 0 { 0 } else { self.allowed_rails() };
        let first = context.welcome(verdict, our_ack, our_rails).to_vec();
        let line = TcpConnection::new(sock, self.numbers.next(), first);
        self.join(peer, line, (ack, rails));
    }

    /// If there have been too many unauthenticated connections for long: warns that some of them, such as `caller`, are
    /// closed to make room for others.
    fn complain_of_many(&mut self, caller: &UnprovenConnection) {
        let now_ns = self.sockets.clock_ns();
        let is_long = self.unproven.is_long_crowded(now_ns);
        if is_long
            && self
                .unproven
                .is_first_report(IpAddr::from([0, 0, 0, 0]), "many")
        {
            self.notices.complain(format!(
                "for 10 s more have connected than prove to be of this job, and the oldest are closed, as one from {}: ranks connect \
                 again, others should not connect at all",
                caller.from
            ));
        }
    }

    /// Warns about a rejected connection, if the reason concerns the user.
    pub(super) fn complain_of(&mut self, caller: &UnprovenConnection, refusal: &HandshakeRefusal) {
        let (from, ip) = (caller.from, caller.from.ip());
        let (what, message) = match refusal {
            HandshakeRefusal::Fault(HandshakeFault::Key) => (
                "key",
                "did not prove that it has the key of this job: it is of another job, or of none"
                    .to_owned(),
            ),
            HandshakeRefusal::Fault(HandshakeFault::Garbage) => {
                ("garbage", "is no process of an MPI job".to_owned())
            }
            HandshakeRefusal::Fault(HandshakeFault::Version(version)) => {
                ("version", describe_version(*version))
            }
            HandshakeRefusal::Rail(peer, why) => (
                "rail",
                format!("is rank {peer}, which requests another connection {why}"),
            ),
            // The caller has given up, has another connection, or has been computing since it connected.
            HandshakeRefusal::Io(_) | HandshakeRefusal::Verdict(_) => return,
        };
        self.counts.refused.add(1);
        if self.unproven.is_first_report(ip, what) {
            self.notices.complain(format!(
                "a program at {from} has connected and {message}: refused; reported once for each host"
            ));
        }
    }
}

/// Pause before the next `accept` after a failure.
const SHUT_NS: u64 = 50_000_000;
/// Pause before the next `accept` if unauthenticated connections have filled all places and one of them has ended.
const CROWD_NS: u64 = 5_000_000;

/// Joining, when both sides are authenticated.
impl<S: Sockets> TcpLinks<S> {
    /// Makes this connection the line to `peer`, which has reported its state in the handshake. If the reported
    /// acknowledgement is invalid, closes the connection instead.
    fn join(&mut self, peer: u32, line: TcpConnection, (ack, rails): HandshakeReport) {
        let sock = line.sock;
        self.end_call(peer, Some(sock));
        self.hang_up(peer);
        self.make_room(self.limits.lines.saturating_sub(1));
        if !self.acknowledge(peer, ack) {
            self.close(sock);
            return self.flush(peer);
        }
        self.own(sock, SockOwner::Line(peer));
        let (used, since_ns) = (self.turn, self.now_ns);
        let side = self.of(peer);
        side.rails.allowed = rails;
        side.silent_ns = 0;
        side.has_complained = false;
        side.line = Some(TcpConnection {
            used,
            since_ns,
            moved_ns: since_ns,
            ..line
        });
        self.joined.push(peer);
        self.counts.joined.add(1);
        self.flush(peer);
        self.upshots.push_back(TcpLinkEvent::GoOn(peer));
    }

    /// Records a peer's address; a peer without an address is lost.
    pub(super) fn set_peer_address(&mut self, peer: u32, part: Option<&[u8]>) {
        let place = part.and_then(address::from_record);
        let Some(place) = place.filter(|place| !place.addresses().is_empty()) else {
            let why = "it has announced no address at which it can be reached by tcp: is tcp in its RMPI_PROVIDERS?";
            return self.lose(peer, why);
        };
        let place = self.hosts.share(place);
        self.of(peer).place = Some(place);
        self.flush(peer);
    }
}

/// State that a peer reports in its handshake: its acknowledgement of the stream from this process, and how many
/// connections it allows with this process (0: it does not support rails).
type HandshakeReport = (Ack, u8);

/// Checks that the incoming message is of this version.
fn check_version(stream: &HandshakeStream) -> Result<(), HandshakeFault> {
    match proof::foreign_version(stream.begun()) {
        Some(version) => Err(HandshakeFault::Version(version)),
        None => Ok(()),
    }
}

/// The other side's first message, if it is complete.
fn pull_first<const BYTES: usize>(
    stream: &mut HandshakeStream,
    sockets: &mut impl Sockets,
) -> Result<Option<[u8; BYTES]>, HandshakeRefusal> {
    let pulled = stream.pull(sockets);
    check_version(stream)?;
    Ok(pulled?)
}

/// Reads the available part of a RIDDLE, to be processed later.
fn take_riddle_in(
    stream: &mut HandshakeStream,
    sockets: &mut impl Sockets,
) -> Result<(), HandshakeRefusal> {
    let took = stream.take_in::<{ proof::RIDDLE_BYTES }>(sockets);
    check_version(stream)?;
    Ok(took?)
}

/// The message for the user about a process with another version, and what to do.
fn describe_version(version: u16) -> String {
    format!(
        "speaks version {version} of the protocol, and this process version {}: use one installation on all hosts",
        proof::VERSION
    )
}

/// Why a handshake failed, in words for the user.
fn describe_refusal(refusal: &HandshakeRefusal) -> String {
    match refusal {
        HandshakeRefusal::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            "it has ended the connection".to_owned()
        }
        HandshakeRefusal::Io(error) => error.to_string(),
        HandshakeRefusal::Fault(HandshakeFault::Garbage) => {
            "something else than an MPI process answers".to_owned()
        }
        HandshakeRefusal::Fault(HandshakeFault::Version(version)) => {
            format!("it {}", describe_version(*version))
        }
        HandshakeRefusal::Fault(HandshakeFault::Key) => {
            "a process of another job answers".to_owned()
        }
        HandshakeRefusal::Verdict(HandshakeVerdict::NotMe) => "another process answers".to_owned(),
        HandshakeRefusal::Verdict(HandshakeVerdict::Old) => {
            "it has received a later attempt".to_owned()
        }
        HandshakeRefusal::Rail(_, why) => (*why).to_owned(),
        HandshakeRefusal::Verdict(_) => "it is about to connect itself".to_owned(),
    }
}
