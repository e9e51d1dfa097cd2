// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls in which the threads of a rank wait, put together from what the library says of operations and of calls.

use crate::report::RankReport;

/// A blocking call of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankCall {
    /// The function, as `MPI_Recv`.
    pub function: String,
    /// The thread, where that is not the main one.
    pub thread: Option<u32>,
    /// No other thread of the rank can be in MPI meanwhile.
    pub alone: bool,
    /// It waits for something else too, of which nothing is known.
    pub more: bool,
    /// Requests of it that are done, and those that are pending, if it has several and the library says so.
    pub requests: Option<(u32, u32)>,
    /// What it waits for.
    pub targets: Vec<AwaitedTarget>,
}

/// What a call waits for: a place among the rank's communicators, and one in a list of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AwaitedTarget {
    /// A send.
    Send(usize, usize),
    /// A receive.
    Receive(usize, usize),
    /// A message that is only looked at.
    Probe(usize, usize),
    /// A blocking collective: its place among the communicator's calls.
    Collective(usize, usize),
    /// A nonblocking one.
    Begun(usize, usize),
    /// A collective of which nothing is known but its name, without `MPI_`.
    Named(usize, String),
    /// `MPI_Finalize`, on the first communicator.
    Finalize,
}

/// The calls of a rank, one a thread.
#[must_use]
pub fn calls(rank: &RankReport) -> Vec<RankCall> {
    let mut calls: Vec<RankCall> = Vec::new();
    for (place, comm) in rank.communicators.iter().enumerate() {
        let targets = [
            (
                &comm.sends,
                AwaitedTarget::Send as fn(usize, usize) -> AwaitedTarget,
            ),
            (&comm.receives, AwaitedTarget::Receive),
        ];
        for (queue, target) in targets {
            for (at, it) in queue.iter().enumerate() {
                if let Some(function) = &it.call {
                    let call = entry(&mut calls, function, it.thread, it.alone);
                    call.requests = it.requests;
                    call.targets.push(target(place, at));
                }
            }
        }
        for (at, it) in comm.begun.iter().enumerate() {
            if let Some(function) = &it.call {
                let call = entry(&mut calls, function, it.thread, it.alone);
                call.requests = it.requests;
                call.targets.push(AwaitedTarget::Begun(place, at));
            }
        }
        for (at, it) in comm.calls.iter().enumerate() {
            let call = entry(&mut calls, &it.function, it.thread, it.alone);
            call.requests = call.requests.or(it.requests);
            match (&*it.waits, &*it.function) {
                ("waits for a message", _) => call.targets.push(AwaitedTarget::Probe(place, at)),
                (OTHERS, FINALIZE) => call.targets.push(AwaitedTarget::Finalize),
                (OTHERS, _) => call.targets.push(AwaitedTarget::Collective(place, at)),
                (_, FINALIZE) => call.targets.extend(sends(rank)),
                _ => match only_collective(rank) {
                    Some((place, name)) => {
                        call.targets
                            .push(AwaitedTarget::Named(place, name.to_owned()));
                    }
                    None => call.more = true,
                },
            }
        }
    }
    calls
}

impl RankCall {
    /// Of a call that needs all of several requests: those that are done, and all.
    #[must_use]
    pub fn done(&self) -> Option<(u32, u32)> {
        let (done, pending) = self.requests.filter(|_| !self.is_any())?;
        Some((done, done.saturating_add(pending)))
    }

    /// One of the targets is enough.
    #[must_use]
    pub fn is_any(&self) -> bool {
        ["MPI_Waitany", "MPI_Waitsome"].contains(&&*self.function)
    }
}

fn entry<'a>(
    calls: &'a mut Vec<RankCall>,
    function: &str,
    thread: Option<u32>,
    alone: bool,
) -> &'a mut RankCall {
    let known = calls
        .iter()
        .position(|it| it.thread == thread && it.function == function);
    let place = known.unwrap_or(calls.len());
    if known.is_none() {
        calls.push(RankCall {
            function: function.to_owned(),
            thread,
            alone,
            more: false,
            requests: None,
            targets: Vec::new(),
        });
    }
    &mut calls[place]
}

/// `MPI_Finalize` waits until they have been received.
fn sends(rank: &RankReport) -> Vec<AwaitedTarget> {
    let comms = rank.communicators.iter().enumerate();
    let sends = comms.flat_map(|(place, comm)| {
        let pending = comm
            .sends
            .iter()
            .enumerate()
            .filter(|(_, it)| it.status == "pending");
        pending.map(move |(at, _)| AwaitedTarget::Send(place, at))
    });
    sends.collect()
}

/// The nonblocking collective that is under way, if it is one: requests of such are not listed.
fn only_collective(rank: &RankReport) -> Option<(usize, &str)> {
    let mut found = Vec::new();
    for (place, comm) in rank.communicators.iter().enumerate() {
        for it in comm.collectives.iter().filter(|it| it.active > 0) {
            found.push((place, &*it.name, it.active));
        }
    }
    match found[..] {
        [(place, name, 1)] => Some((place, name)),
        _ => None,
    }
}

/// What the library says of a call that waits for other ranks.
pub const OTHERS: &str = "waits for the other ranks";
/// The call that waits for all ranks to leave.
pub const FINALIZE: &str = "MPI_Finalize";
