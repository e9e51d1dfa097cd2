// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rendezvous of hosts that run the same tests in the same order; the hosts meet once for each test. Host a, which has
//! number 0, listens, and the others connect to it. Messages about the ranks of a host are relayed to all hosts: the
//! ranks' records, their phases, and the reason why the host gives a test up.
//!
//! A connecting host sends the number of its run and the name of its test. It counts as arrived only after it has
//! confirmed the Welcome, so a stale connection of another test or run has no effect. If a test fails on one host
//! before both hosts have met, the other host is behind: it is sent the outcome of that test when it connects. So a
//! failure ends that test on every host within seconds, with an error message, and does not affect other tests.

pub mod link;
mod table;

use link::{HostLink, HostMessage};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
pub use table::MeetingRank;
use table::MeetingTable;

/// One of the hosts that run a test.
pub struct MeetingHost {
    me: u32,
    count: u32,
    /// The address of host a.
    address: SocketAddr,
    run: u64,
    /// Only on host a. It stays open for all tests, so that hosts that connect early wait in its backlog.
    listener: Option<TcpListener>,
    /// The names of the tests that were run on this host, with their outcomes.
    past: Vec<(String, String)>,
    pub limits: MeetingLimits,
}

/// Time limits of a test.
#[derive(Clone, Copy, Debug)]
pub struct MeetingLimits {
    /// Time until all hosts have arrived at a test. Each host leaves the previous test within seconds of the others.
    pub meeting: Duration,
    /// Time between two messages of another host.
    pub silence: Duration,
    /// Time for a test after all hosts have met: longer than any behaviour takes on an emulated machine with packet
    /// loss.
    pub test: Duration,
    /// Time for the end of a test that was given up: until its ranks have ended, and the last messages between hosts
    /// have arrived.
    pub end: Duration,
}

impl Default for MeetingLimits {
    fn default() -> Self {
        Self {
            meeting: Duration::from_secs(120),
            silence: Duration::from_secs(60),
            test: Duration::from_secs(300),
            end: Duration::from_secs(10),
        }
    }
}

impl MeetingHost {
    /// The host of a test that runs on one host only.
    pub fn alone() -> Self {
        Self {
            me: 0,
            count: 1,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            run: 0,
            listener: None,
            past: Vec::new(),
            limits: MeetingLimits::default(),
        }
    }

    /// Host a of `count` hosts, which listens at this address; port 0: at any free port.
    pub fn first(count: u32, address: SocketAddr, run: u64) -> Result<Self, String> {
        let wrong = |why| format!("host a cannot listen at {address}: {why}");
        let listener = TcpListener::bind(address).map_err(wrong)?;
        listener.set_nonblocking(true).map_err(wrong)?;
        Ok(Self {
            count,
            address: listener.local_addr().map_err(wrong)?,
            run,
            listener: Some(listener),
            ..Self::alone()
        })
    }

    /// A host other than host a; `address` is that of host a.
    pub fn other(me: u32, count: u32, address: SocketAddr, run: u64) -> Self {
        Self {
            me,
            count,
            address,
            run,
            ..Self::alone()
        }
    }

    /// Parses the description of a host, for example `1/2 10.77.0.1:7770 17`: number 1 of 2 hosts, the address of host
    /// number 0 (host a), and the number of the run.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` does not state which host this is: expected NUMBER/COUNT ADDRESS:PORT RUN, as in 1/2 10.77.0.1:7770 17"
            )
        };
        let [place, address, run] = text.split(' ').collect::<Vec<_>>()[..] else {
            return Err(wrong());
        };
        let (me, count) = place.split_once('/').ok_or_else(wrong)?;
        let (me, count) = (me.parse(), count.parse::<u32>());
        let (Ok(me), Ok(count), Ok(address), Ok(run)) = (me, count, address.parse(), run.parse())
        else {
            return Err(wrong());
        };
        match me {
            _ if me >= count => Err(wrong()),
            0 if count == 1 => Ok(Self::alone()),
            0 => Self::first(count, address, run),
            _ => Ok(Self::other(me, count, address, run)),
        }
    }

    /// The address of host a.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Runs a test: meets the other hosts, and calls `rank` for each rank of this host, in a thread of its own. An
    /// error is the reason why the test failed, on this host or on another.
    pub fn run<F>(&mut self, test: &str, ranks: u32, rank: F) -> Result<(), String>
    where
        F: Fn(&MeetingRank) + Clone + Send + 'static,
    {
        let end = self.connect_hosts(test).and_then(|links| {
            let here = (0..ranks).filter(|rank| rank % self.count == self.me);
            let mut table = MeetingTable::new(self.me, ranks, links, self.limits);
            table.run(here, rank)
        });
        let outcome = end
            .as_ref()
            .err()
            .map_or("the test is over there, and went well", String::as_str);
        self.past.push((test.to_owned(), outcome.to_owned()));
        end.map_err(|why| format!("host {}: {why}", host_name(self.me)))
    }

    /// The outcome of a test on this host, if it was run.
    fn end_of(&self, test: &str) -> Option<String> {
        let found = self.past.iter().rev().find(|(name, _)| name == test);
        found.map(|(_, end)| end.clone())
    }

    /// Meets the other hosts. Returns, on host a, a connection with every other host; on another host, the connection
    /// with host a.
    fn connect_hosts(&self, test: &str) -> Result<Vec<HostLink>, String> {
        match &self.listener {
            Some(listener) => self.gather(listener, test),
            None if self.count == 1 => Ok(Vec::new()),
            None => Ok(vec![self.join(test)?]),
        }
    }

    /// On host a: waits until all other hosts have arrived.
    fn gather(&self, listener: &TcpListener, test: &str) -> Result<Vec<HostLink>, String> {
        let limit = Instant::now() + self.limits.meeting;
        let mut callers = Vec::new();
        let mut here = Vec::new();
        while here.len() + 1 < self.count as usize {
            while let Ok((stream, _)) = listener.accept() {
                callers.extend(HostLink::new(stream, None));
            }
            let mut polled = self.poll_callers(&mut callers, &mut here, test);
            if Instant::now() > limit {
                polled = polled.and_then(|()| Err(self.missing_hosts(&here)));
            }
            if let Err(why) = polled {
                self.send_away(here, &why);
                return Err(why);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(here)
    }

    /// On host a: handles all connections once.
    fn poll_callers(
        &self,
        callers: &mut Vec<HostLink>,
        here: &mut Vec<HostLink>,
        test: &str,
    ) -> Result<(), String> {
        for mut link in std::mem::take(callers) {
            match self.receive(&mut link, test)? {
                CallerState::Waits => callers.push(link),
                CallerState::Closed => {}
                CallerState::Here => {
                    // If a host has two connections, it uses the newer one.
                    here.retain(|other| other.host != link.host);
                    here.push(link);
                }
            }
        }
        for link in here {
            link.send_keep_alive();
            // An error is ignored: if the connection is closed, the test detects that when it begins.
            let _ = link.turn();
        }
        Ok(())
    }

    /// On host a, if the test is given up before all hosts have arrived: sends the reason `why` to the hosts that have
    /// arrived.
    fn send_away(&self, here: Vec<HostLink>, why: &str) {
        for mut link in here {
            let why = why.to_owned();
            link.send(&HostMessage::GaveUp { host: self.me, why });
            link.finish(self.limits.end);
        }
    }

    fn missing_hosts(&self, here: &[HostLink]) -> String {
        let is_missing = |host: &u32| here.iter().all(|link| link.host != Some(*host));
        let missing: Vec<String> = (1..self.count).filter(is_missing).map(host_name).collect();
        let seconds = self.limits.meeting.as_secs_f32();
        format!(
            "host {} did not come to this test within {seconds} s",
            missing.join(", ")
        )
    }

    /// On host a: handles the messages of a connection.
    fn receive(&self, link: &mut HostLink, test: &str) -> Result<CallerState, String> {
        let end = link.turn();
        while let Some(message) = link.take() {
            let who = link.host.map_or_else(String::new, host_name);
            match (message, link.host) {
                (
                    HostMessage::Hello {
                        host,
                        run,
                        test: of,
                    },
                    None,
                ) => {
                    let answer = self.answer((host, run, &of), test);
                    // The link of a refused host has no host number, so its later messages are not accepted.
                    let is_refused = matches!(answer, HostMessage::Refused(_));
                    link.host = (!is_refused).then_some(host);
                    link.send(&answer);
                }
                // That host was ahead: it has ended this test, and will connect again for its next test.
                (HostMessage::Over(end), Some(_)) => return Err(gave_up(&who, &end)),
                (HostMessage::Never, Some(_)) => {
                    return Err(format!(
                        "host {who} never comes to this test: run the same tests on all hosts, with --test-threads 1"
                    ));
                }
                (HostMessage::Here, Some(_)) => return Ok(CallerState::Here),
                _ => return Ok(CallerState::Closed),
            }
        }
        // A queued reply is sent in the next turn.
        Ok(match end {
            Ok(()) => CallerState::Waits,
            Err(_) => CallerState::Closed,
        })
    }

    /// On host a: the reply to a Hello.
    fn answer(&self, (host, run, of): (u32, u64, &str), test: &str) -> HostMessage {
        if run != self.run || host == 0 || host >= self.count {
            return HostMessage::Refused(format!(
                "host a is in run {} with {} hosts, and number {host} of run {run} came",
                self.run, self.count
            ));
        }
        match self.end_of(of) {
            _ if of == test => HostMessage::Welcome,
            Some(end) => HostMessage::Over(end),
            None => HostMessage::At(test.to_owned()),
        }
    }

    /// On another host: connects again and again, until host a is at this test.
    fn join(&self, test: &str) -> Result<HostLink, String> {
        let limit = Instant::now() + self.limits.meeting;
        let mut last = String::from("it lets this host wait");
        while Instant::now() < limit {
            match self.try_to_join(test, limit) {
                Ok(JoinResult::Yes(link)) => return Ok(link),
                Ok(JoinResult::NotYet(why)) => last = why,
                Ok(JoinResult::TooLate) => {}
                Err(why) => return Err(why),
            }
            std::thread::sleep(10 * PAUSE);
        }
        let seconds = self.limits.meeting.as_secs_f32();
        Err(format!(
            "host a did not come to this test within {seconds} s; the last answer at {}: {last}",
            self.address
        ))
    }

    /// Makes one connection to host a, and waits until its outcome is known.
    fn try_to_join(&self, test: &str, limit: Instant) -> Result<JoinResult, String> {
        let stream = TcpStream::connect_timeout(&self.address, CONNECT);
        let mut link = match stream.and_then(|stream| HostLink::new(stream, Some(0))) {
            Ok(link) => link,
            Err(why) => return Ok(JoinResult::NotYet(why.to_string())),
        };
        link.send(&HostMessage::Hello {
            host: self.me,
            run: self.run,
            test: test.to_owned(),
        });
        while Instant::now() < limit {
            let end = link.turn();
            match link.take() {
                Some(HostMessage::Welcome) => {
                    link.send(&HostMessage::Here);
                    return Ok(JoinResult::Yes(link));
                }
                Some(HostMessage::Refused(why)) => return Ok(JoinResult::NotYet(why)),
                Some(HostMessage::Over(end)) => return Err(gave_up("a", &end)),
                Some(HostMessage::At(other)) => return self.is_elsewhere(&mut link, &other),
                _ => {}
            }
            if let Err(why) = end {
                return Ok(JoinResult::NotYet(why));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(JoinResult::TooLate)
    }

    /// Handles that host a is at another test: an earlier one, if all hosts run the same tests. Sends host a the
    /// outcome of that test on this host.
    fn is_elsewhere(&self, link: &mut HostLink, other: &str) -> Result<JoinResult, String> {
        let end = self.end_of(other);
        link.send(&end.clone().map_or(HostMessage::Never, HostMessage::Over));
        link.finish(self.limits.end);
        match end {
            Some(_) => Ok(JoinResult::NotYet(format!("host a is at {other}"))),
            None => Err(format!(
                "host a is at {other}, which never ran here: run the same tests on all hosts, with --test-threads 1"
            )),
        }
    }
}

/// State of a connection at host a.
enum CallerState {
    Waits,
    Closed,
    Here,
}

/// The outcome of a connection to host a.
enum JoinResult {
    Yes(HostLink),
    NotYet(String),
    /// There was no reply in time.
    TooLate,
}

fn host_name(host: u32) -> String {
    match u8::try_from(host) {
        Ok(host @ 0..26) => char::from(b'a' + host).to_string(),
        _ => format!("number {host}"),
    }
}

fn gave_up(host: &str, why: &str) -> String {
    // If the reason is itself that another host gave up, it is returned unchanged.
    match why.contains(" gave up: ") {
        true => why.to_owned(),
        false => format!("host {host} gave up: {why}"),
    }
}

/// Time between two polls of the connections.
const PAUSE: Duration = Duration::from_millis(2);
/// Time limit of one attempt to connect.
const CONNECT: Duration = Duration::from_secs(5);
