// SPDX-License-Identifier: MIT OR Apache-2.0
//! Establishing connections: this process connects to a peer (a *call*), or is connected to; then both prove their
//! identity (`proof.rs`), and join.
//!
//! Where two processes call each other at once, the call of the one with precedence counts, if it has got through; the
//! other one gets the verdict to yield, and abandons its own call when it is called. When a peer joins a second time,
//! the later connection counts: the peer has noticed before this process that the former broke.

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
    Wrong(HandshakeFault),
    /// Another process was meant, or a rule rejects the connection.
    Verdict(HandshakeVerdict),
    /// A peer wants a further connection that it may not have, for this reason.
    Rail(u32, &'static str),
}

impl From<io::Error> for HandshakeRefusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<HandshakeFault> for HandshakeRefusal {
    fn from(wrong: HandshakeFault) -> Self {
        Self::Wrong(wrong)
    }
}

/// Calls by this process.
impl<S: Sockets> TcpLinks<S> {
    /// Starts to connect to a peer, unless that was done.
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

    /// The same, at the end of the queue.
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

    /// Ends the turn of a call, which waits for the next one, or for the peer alone. It makes no further connections
    /// meanwhile, and keeps those that the peer's system has accepted, at most one for each of its addresses. All
    /// connections kept so are at most as many as there may be connections, and take only a part of the descriptors:
    /// the program needs some, too.
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
        let heard = self.find(peer).and_then(|side| side.call.as_ref());
        if kept + heard.map_or(0, |call| call.heard().len()) > most {
            return self.let_go(peer);
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

    /// The same, but no connection is kept: the descriptors are needed.
    pub(super) fn let_go(&mut self, peer: u32) {
        let call = self.of(peer).call.as_mut();
        let socks = call.map(|call| call.let_go()).unwrap_or_default();
        socks.into_iter().for_each(|sock| self.close(sock));
        self.calls.wait(peer);
    }

    /// Queues a call that stands aside again, if it has connections to make.
    fn see_whether_aside(&mut self, peer: u32) {
        let call = self.find(peer).and_then(|side| side.call.as_ref());
        let has_to_do = call.is_some_and(|call| !call.may_stand_aside());
        if has_to_do && self.calls.is_aside(peer) {
            self.calls.wait(peer);
        }
    }

    /// Ends a call; `but`: the connection that is kept.
    pub(super) fn end_call(&mut self, peer: u32, but: Option<Sock>) {
        let Some(call) = self.find_mut(peer).and_then(|side| side.call.take()) else {
            return;
        };
        self.calls.end(peer);
        for sock in call.socks().filter(|sock| Some(*sock) != but) {
            self.close(sock);
        }
    }

    /// Connects to those addresses of a peer whose time has come.
    pub(super) fn try_again(&mut self, peer: u32) {
        let now_ns = self.now_ns;
        let call = self.find(peer).and_then(|side| side.call.as_ref());
        // This process may have polled late: a connection that was established meanwhile is no failure.
        let late = call.map(|call| call.late(now_ns)).unwrap_or_default();
        late.into_iter()
            .for_each(|sock| self.go_on_with_call(peer, sock));
        let call = self.find(peer).and_then(|side| side.call.as_ref());
        for index in 0..call.map_or(0, |call| call.tries.len()) {
            self.try_one(peer, index);
        }
    }

    /// Connects to one address.
    fn try_one(&mut self, peer: u32, index: usize) {
        let now_ns = self.now_ns;
        // The failure of another one may have ended the call's turn, or the call.
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
                let old = one.fail("nobody answers".to_owned(), now_ns);
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

    /// Starts to connect; without a free descriptor, closes another connection for it.
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
        let (attempt, heard) = if is_rail {
            (0, 0)
        } else {
            side.attempt = side.attempt.wrapping_add(1);
            (side.attempt, side.heard_attempt)
        };
        let hello = Hello {
            is_rail,
            from: far.known_as,
            to,
            attempt,
            heard,
            nonce: [self.sockets.random(), self.sockets.random()],
        };
        let mut talk = HandshakeStream::new(sock);
        talk.say(&hello.to_bytes());
        ConnectStage::Connecting {
            talk,
            hello,
            since_ns: self.now_ns,
        }
    }

    /// Handles an event on a connection of a call.
    pub(super) fn go_on_with_call(&mut self, peer: u32, sock: Sock) {
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
                self.see_whether_aside(peer);
            }
            Ok(Stepped::Joined(Welcome { ack, rails, .. }, attempt)) => {
                let line = TcpConnection::new(sock, self.numbers.next(), Vec::new());
                let attempt = Some(attempt);
                self.join(peer, TcpConnection { attempt, ..line }, (ack, rails));
            }
            Err(HandshakeRefusal::Verdict(HandshakeVerdict::Gone)) => {
                self.close(sock);
                self.lose(peer, "it has given this process up, and says why itself");
            }
            Err(refusal) => {
                self.close(sock);
                self.complain_of_host(peer, index, &refusal);
                self.try_refused(peer, index, &refusal);
            }
        }
    }

    /// The process that was called is of another installation: calling again does not help.
    fn complain_of_host(&mut self, peer: u32, index: usize, refusal: &HandshakeRefusal) {
        let HandshakeRefusal::Wrong(HandshakeFault::Version(version)) = refusal else {
            return;
        };
        let side = self.of(peer);
        let call = side.call.as_ref();
        let Some(address) = call.map(|call| call.tries[index].address) else {
            return;
        };
        let host = side.place.as_ref().map_or("", |place| &*place.host.name);
        let words = format!(
            "rank {peer}{}{host} cannot be reached at {address}: it {}",
            if host.is_empty() { "" } else { " on host " },
            words_of_version(*version)
        );
        if self.strangers.is_news(address.ip(), "version") {
            self.news.complain(words);
        }
    }

    /// One address of a peer has failed for this reason.
    fn try_refused(&mut self, peer: u32, index: usize, refusal: &HandshakeRefusal) {
        let refusals = self
            .of(peer)
            .call
            .as_ref()
            .map_or(0, |call| call.tries[index].refusals);
        self.try_failed(peer, index, &words_of(refusal));
        // Nothing listens at that port, or another process does.
        let is_not_there = match refusal {
            HandshakeRefusal::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
            HandshakeRefusal::Wrong(HandshakeFault::Garbage | HandshakeFault::Key)
            | HandshakeRefusal::Verdict(HandshakeVerdict::NotMe) => true,
            _ => false,
        };
        let call = self.of(peer).call.as_mut();
        if let Some(call) = call.filter(|_| is_not_there) {
            call.note_refusal(index, refusals);
        }
    }

    /// One address of a peer has failed; another may prove now.
    pub(super) fn try_failed(&mut self, peer: u32, index: usize, why: &str) {
        let now_ns = self.now_ns;
        let Some(call) = self.of(peer).call.as_mut() else {
            return;
        };
        call.tries[index].stage = ConnectStage::Failed { again_at_ns: 0 };
        call.tries[index].fail(why.to_owned(), now_ns);
        call.see_whether_heard(now_ns);
        let was_proving = call.proving.take_if(|proving| *proving == index);
        let greeted = |stage: &ConnectStage| matches!(stage, ConnectStage::Greeted { .. });
        let others = call.tries.iter().filter(|one| greeted(&one.stage));
        let others = others.filter_map(|one| one.stage.sock());
        let others: Vec<Sock> = others.filter(|_| was_proving.is_some()).collect();
        self.see_whether_aside(peer);
        for sock in others {
            self.go_on_with_call(peer, sock);
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
                mut talk,
                hello,
                since_ns,
            } => {
                if !talk.push(sockets)? {
                    return Ok(Stepped::At(ConnectStage::Connecting {
                        talk,
                        hello,
                        since_ns,
                    }));
                }
                sockets.want_to_send(talk.sock, false);
                self.step(peer, ConnectStage::Greeted { talk, hello }, may_prove)
            }
            ConnectStage::Greeted { mut talk, hello } if !may_prove => {
                take_riddle_in(&mut talk, sockets)?;
                Ok(Stepped::At(ConnectStage::Greeted { talk, hello }))
            }
            ConnectStage::Greeted { mut talk, hello } => {
                let Some(riddle) = pull_first(&mut talk, sockets)? else {
                    return Ok(Stepped::At(ConnectStage::Greeted { talk, hello }));
                };
                let meeting = self.answer_riddle(peer, &riddle, hello, &mut talk)?;
                self.step(peer, ConnectStage::Proved { talk, meeting }, true)
            }
            ConnectStage::Proved { mut talk, meeting } => {
                if !talk.push(sockets)? {
                    sockets.want_to_send(talk.sock, true);
                    return Ok(Stepped::At(ConnectStage::Proved { talk, meeting }));
                }
                sockets.want_to_send(talk.sock, false);
                let Some(welcome) = talk.pull(sockets)? else {
                    return Ok(Stepped::At(ConnectStage::Proved { talk, meeting }));
                };
                let welcome = meeting.of_welcome(&welcome)?;
                match welcome.verdict {
                    HandshakeVerdict::Joined => Ok(Stepped::Joined(welcome, meeting.hello.attempt)),
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
        talk: &mut HandshakeStream,
    ) -> Result<HandshakeContext, HandshakeRefusal> {
        let (verdict, nonce) = proof::of_riddle(riddle)?;
        match verdict {
            HandshakeVerdict::Joined => {}
            // These verdicts come only after the proofs.
            HandshakeVerdict::Gone | HandshakeVerdict::NoRail => {
                return Err(HandshakeRefusal::Wrong(HandshakeFault::Garbage));
            }
            verdict => return Err(HandshakeRefusal::Verdict(verdict)),
        }
        let keys = self.secrets.with(peer);
        let meeting = HandshakeContext { keys, hello, nonce };
        let rails = self.rails_to_tell();
        let ack = match hello.is_rail {
            true => Ack::default(),
            false => self.of(peer).session.tell(),
        };
        talk.say(&meeting.proof(ack, rails));
        Ok(meeting)
    }
}

/// Calls that wait for their turn keep at most one of so many descriptors.
const KEPT_PART: usize = 4;

/// Progress of a call.
#[derive(Debug)]
pub(super) enum Stepped {
    At(ConnectStage),
    /// The peer has joined, on this attempt.
    Joined(Welcome, u32),
}

/// Incoming connections.
impl<S: Sockets> TcpLinks<S> {
    /// Accepts the waiting connections.
    pub(super) fn open_door(&mut self) {
        let now_ns = self.sockets.clock_ns();
        let mut has_taken = false;
        while self.strangers.has_room(now_ns) && !self.is_full() {
            match self.sockets.accept() {
                Ok(Some((sock, from))) => {
                    has_taken = true;
                    if let Some(stranger) = self.strangers.take_for_another(now_ns) {
                        self.close(stranger.talk.sock);
                        self.complain_of_many(&stranger);
                    }
                    self.own(sock, SockOwner::Stranger);
                    self.strangers.add(sock, from, now_ns);
                }
                Ok(None) => return,
                Err(error) if eviction::is_without_descriptors(&error) => {
                    if has_taken {
                        // The event also occurs when no further connection waits; if one does there is another event.
                        return;
                    }
                    if !self.free_one(None) {
                        self.lack_descriptors();
                        break;
                    }
                }
                Err(error) => {
                    let here = IpAddr::from([0, 0, 0, 0]);
                    if self.strangers.is_news(here, "accept") {
                        let words =
                            format!("a connection cannot be taken in: {error}; it is tried again");
                        self.news.complain(words);
                    }
                    break;
                }
            }
        }
        self.is_crowded = !self.strangers.has_room(now_ns);
        let give_way_ns = self.strangers.give_way_at_ns();
        let until_ns = give_way_ns.filter(|_| self.is_crowded);
        // Else the kernel would report the waiting connection again and again.
        self.shut_until_ns = Some(until_ns.unwrap_or(now_ns + SHUT_NS));
        self.sockets.want_callers(false);
    }

    /// An unauthenticated connection has ended: waiting ones are accepted soon, or at once if many have ended.
    fn make_way(&mut self) {
        let soon_ns = match self.strangers.has_much_room() {
            true => self.now_ns,
            false => self.now_ns + CROWD_NS,
        };
        if let Some(until_ns) = self.shut_until_ns.as_mut().filter(|_| self.is_crowded) {
            *until_ns = soon_ns.min(*until_ns);
            self.open_door_again();
        }
    }

    /// Accepts connections again after a pause; there is an event if one waits.
    pub(super) fn open_door_again(&mut self) {
        let is_over = |until_ns: &u64| *until_ns <= self.now_ns;
        if self
            .shut_until_ns
            .take_if(|until_ns| is_over(until_ns))
            .is_some()
        {
            self.sockets.want_callers(true);
        }
    }

    /// Handles an event on an unauthenticated connection.
    pub(super) fn go_on_with_stranger(&mut self, sock: Sock) {
        let Some(mut stranger) = self.strangers.take(sock) else {
            return;
        };
        match self.listen(&mut stranger) {
            Ok(None) => return self.strangers.put_back(stranger),
            Ok(Some((peer, _, meeting))) if meeting.hello.is_rail => {
                self.welcome_rail(peer, &meeting, stranger);
            }
            Ok(Some((peer, told, meeting))) => self.welcome(peer, told, &meeting, stranger),
            Err(refusal) => {
                self.close(sock);
                self.complain_of(&stranger, &refusal);
            }
        }
        self.make_way();
    }

    /// Processes the caller's messages; returns the peer and its proof's content when it is authenticated.
    fn listen(
        &mut self,
        stranger: &mut UnprovenConnection,
    ) -> Result<Option<(u32, Told, HandshakeContext)>, HandshakeRefusal> {
        if stranger.meeting.is_none() {
            let hello = match pull_first(&mut stranger.talk, &mut self.sockets) {
                Ok(None) => return Ok(None),
                Ok(Some(hello)) => Hello::of(&hello),
                Err(HandshakeRefusal::Wrong(wrong)) => Err(wrong),
                Err(refusal) => return Err(refusal),
            };
            let hello = match hello {
                Err(HandshakeFault::Version(version)) => {
                    // It compares versions itself, and can report that.
                    stranger
                        .talk
                        .say(&proof::riddle(HandshakeVerdict::NotMe, [0; 2]));
                    stranger.talk.push(&mut self.sockets)?;
                    return Err(HandshakeRefusal::Wrong(HandshakeFault::Version(version)));
                }
                hello => hello?,
            };
            let peer = hello.from;
            if hello.to != self.identity || !self.known.may_be(peer) {
                stranger
                    .talk
                    .say(&proof::riddle(HandshakeVerdict::NotMe, [0; 2]));
                stranger.talk.push(&mut self.sockets)?;
                return Err(HandshakeRefusal::Verdict(HandshakeVerdict::NotMe));
            }
            let nonce = [self.sockets.random(), self.sockets.random()];
            let keys = self.secrets.with(peer);
            stranger
                .talk
                .say(&proof::riddle(HandshakeVerdict::Joined, nonce));
            stranger.meeting = Some((peer, HandshakeContext { keys, hello, nonce }));
        }
        if !stranger.talk.push(&mut self.sockets)? {
            self.sockets.want_to_send(stranger.talk.sock, true);
            return Ok(None);
        }
        self.sockets.want_to_send(stranger.talk.sock, false);
        let proof = stranger.talk.pull(&mut self.sockets)?;
        let (Some((peer, meeting)), Some(proof)) = (stranger.meeting, proof) else {
            return Ok(None);
        };
        let told = meeting.of_proof(&proof)?;
        Ok(Some((peer, told, meeting)))
    }

    /// Joins an authenticated caller, or sends it the reason why not.
    fn welcome(
        &mut self,
        peer: u32,
        told: Told,
        meeting: &HandshakeContext,
        mut stranger: UnprovenConnection,
    ) {
        let (ack, rails) = told;
        let sock = stranger.talk.sock;
        let (is_first, now_ns) = (self.known.with(peer).is_first, self.now_ns);
        let side = self.of(peer);
        let is_old = meeting
            .hello
            .attempt
            .wrapping_sub(side.heard_attempt)
            .cast_signed()
            <= 0;
        // It has called before it has welcomed the call that led to the present connection.
        let is_stale = |attempt: u32| meeting.hello.heard.wrapping_sub(attempt).cast_signed() < 0;
        let has_crossed = side
            .line
            .as_ref()
            .and_then(|line| line.attempt)
            .is_some_and(is_stale);
        let is_promising = |call: &ActiveOpen| call.is_promising(now_ns);
        let calls = is_first && side.call.as_deref().is_some_and(is_promising);
        let verdict = if side.lost.is_some() {
            HandshakeVerdict::Gone
        } else if is_old || !side.may_have(ack.next) {
            HandshakeVerdict::Old
        } else if calls || has_crossed {
            HandshakeVerdict::Yield
        } else {
            HandshakeVerdict::Joined
        };
        if verdict != HandshakeVerdict::Joined {
            stranger
                .talk
                .say(&meeting.welcome(verdict, Ack::default(), 0));
            // If that does not get through, the end of the connection has the same effect.
            _ = stranger.talk.push(&mut self.sockets);
            return self.close(sock);
        }
        side.heard_attempt = meeting.hello.attempt;
        if self.hang_up(peer) {
            self.counts.broken.add(1);
        }
        let told = self.of(peer).session.tell();
        let our_rails = if rails == 0 { 0 } else { self.rails_to_tell() };
        let first = meeting.welcome(verdict, told, our_rails).to_vec();
        let line = TcpConnection::new(sock, self.numbers.next(), first);
        self.join(peer, line, (ack, rails));
    }

    /// Warns that a connection was rejected to make room for others.
    fn complain_of_many(&mut self, stranger: &UnprovenConnection) {
        let now_ns = self.sockets.clock_ns();
        let is_long = self.strangers.is_long_crowded(now_ns);
        if is_long && self.strangers.is_news(IpAddr::from([0, 0, 0, 0]), "many") {
            self.news.complain(format!(
                "for 10 s more have connected than prove to be of this job, and the oldest are sent away, as one from {}: ranks connect \
                 again, others should not connect at all",
                stranger.from
            ));
        }
    }

    /// Warns about a rejected connection, where the user should know.
    pub(super) fn complain_of(
        &mut self,
        stranger: &UnprovenConnection,
        refusal: &HandshakeRefusal,
    ) {
        let (from, ip) = (stranger.from, stranger.from.ip());
        let (what, words) = match refusal {
            HandshakeRefusal::Wrong(HandshakeFault::Key) => (
                "key",
                "did not prove to know the key of this job: it is of another job, or of nobody's"
                    .to_owned(),
            ),
            HandshakeRefusal::Wrong(HandshakeFault::Garbage) => {
                ("garbage", "is no process of an MPI job".to_owned())
            }
            HandshakeRefusal::Wrong(HandshakeFault::Version(version)) => {
                ("version", words_of_version(*version))
            }
            HandshakeRefusal::Rail(peer, why) => (
                "rail",
                format!("is rank {peer}, which wants another connection {why}"),
            ),
            // The caller has given up, has another connection, or has been computing since it connected.
            HandshakeRefusal::Io(_) | HandshakeRefusal::Verdict(_) => return,
        };
        self.counts.refused.add(1);
        if self.strangers.is_news(ip, what) {
            self.news.complain(format!(
                "somebody at {from} has connected and {words}: refused, which is said once of each host"
            ));
        }
    }
}

/// Pause before the next accept after a failure.
const SHUT_NS: u64 = 50_000_000;
/// Pause where there was no room, and some of the connections that filled it have ended.
const CROWD_NS: u64 = 5_000_000;

/// Joining, when both sides are authenticated.
impl<S: Sockets> TcpLinks<S> {
    /// Makes this connection the line to a peer, whose handshake reported this state.
    fn join(&mut self, peer: u32, line: TcpConnection, (ack, rails): Told) {
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
        side.rails.told = rails;
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

    /// Records a peer's address.
    pub(super) fn learn_address(&mut self, peer: u32, part: Option<&[u8]>) {
        let place = part.and_then(address::from_record);
        let Some(place) = place.filter(|place| !place.addresses().is_empty()) else {
            let why = "it has told no address at which it can be reached by tcp: is tcp in its RMPI_PROVIDERS?";
            return self.lose(peer, why);
        };
        let place = self.hosts.share(place);
        self.of(peer).place = Some(place);
        self.flush(peer);
    }
}

/// State that a peer reports in its handshake: its acknowledgement of our stream, and how many connections it allows
/// with this process; 0: it does not support rails.
type Told = (Ack, u8);

/// Checks that the incoming message is of this version.
fn check_version(talk: &HandshakeStream) -> Result<(), HandshakeFault> {
    match proof::foreign_version(talk.begun()) {
        Some(version) => Err(HandshakeFault::Version(version)),
        None => Ok(()),
    }
}

/// The other side's first message, if it is complete.
fn pull_first<const BYTES: usize>(
    talk: &mut HandshakeStream,
    sockets: &mut impl Sockets,
) -> Result<Option<[u8; BYTES]>, HandshakeRefusal> {
    let pulled = talk.pull(sockets);
    check_version(talk)?;
    Ok(pulled?)
}

/// Reads the available part of a RIDDLE, for later.
fn take_riddle_in(
    talk: &mut HandshakeStream,
    sockets: &mut impl Sockets,
) -> Result<(), HandshakeRefusal> {
    let took = talk.take_in::<{ proof::RIDDLE_BYTES }>(sockets);
    check_version(talk)?;
    Ok(took?)
}

/// The message for the user about a process with another version, and what to do.
fn words_of_version(version: u16) -> String {
    format!(
        "speaks version {version} of the protocol, and this process version {}: use one installation on all hosts",
        proof::VERSION
    )
}

/// The message for the user.
fn words_of(refusal: &HandshakeRefusal) -> String {
    match refusal {
        HandshakeRefusal::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            "it has ended the connection".to_owned()
        }
        HandshakeRefusal::Io(error) => error.to_string(),
        HandshakeRefusal::Wrong(HandshakeFault::Garbage) => {
            "something else than an MPI process answers".to_owned()
        }
        HandshakeRefusal::Wrong(HandshakeFault::Version(version)) => {
            format!("it {}", words_of_version(*version))
        }
        HandshakeRefusal::Wrong(HandshakeFault::Key) => {
            "a process of another job answers".to_owned()
        }
        HandshakeRefusal::Verdict(HandshakeVerdict::NotMe) => "another process answers".to_owned(),
        HandshakeRefusal::Verdict(HandshakeVerdict::Old) => {
            "it has heard of a later attempt".to_owned()
        }
        HandshakeRefusal::Rail(_, why) => (*why).to_owned(),
        HandshakeRefusal::Verdict(_) => "it is about to connect itself".to_owned(),
    }
}
