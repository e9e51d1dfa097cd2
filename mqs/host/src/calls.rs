// SPDX-License-Identifier: MIT OR Apache-2.0
//! Derives the calls in which the threads of a rank wait, from the debugger library's lists of operations and calls.

use crate::report::RankReport;

/// A blocking call of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankCall {
    /// Name of the function, such as `MPI_Recv`.
    pub function: String,
    /// Id of the thread; `None` for the main thread.
    pub thread: Option<u32>,
    /// Whether no other thread of the rank can be in MPI at the same time.
    pub alone: bool,
    /// Whether the call also waits for something that the debugger library does not list.
    pub more: bool,
    /// How many of the call's requests are complete, and how many pending; `None` unless it has several and the library
    /// counts them.
    pub requests: Option<(u32, u32)>,
    /// The operations and calls that this call waits for.
    pub targets: Vec<AwaitedTarget>,
}

/// Something that a call waits for. The first number is an index among the rank's communicators, the second an index
/// into a list of that communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AwaitedTarget {
    /// A send.
    Send(usize, usize),
    /// A receive.
    Receive(usize, usize),
    /// A message for a probe: an index into the communicator's calls.
    Probe(usize, usize),
    /// A blocking collective: an index into the communicator's calls.
    Collective(usize, usize),
    /// A nonblocking collective: an index into the communicator's nonblocking collectives.
    Begun(usize, usize),
    /// A collective of which only the name, without `MPI_`, is known.
    Named(usize, String),
    /// `MPI_Finalize`, on the first communicator.
    Finalize,
}

/// The calls of a rank, one per thread.
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
                    let call = call_of_thread(&mut calls, function, it.thread, it.alone);
                    call.requests = it.requests;
                    call.targets.push(target(place, at));
                }
            }
        }
        for (at, it) in comm.begun.iter().enumerate() {
            if let Some(function) = &it.call {
                let call = call_of_thread(&mut calls, function, it.thread, it.alone);
                call.requests = it.requests;
                call.targets.push(AwaitedTarget::Begun(place, at));
            }
        }
        for (at, it) in comm.calls.iter().enumerate() {
            let call = call_of_thread(&mut calls, &it.function, it.thread, it.alone);
            call.requests = call.requests.or(it.requests);
            match (&*it.waits, &*it.function) {
                ("waits for a message", _) => call.targets.push(AwaitedTarget::Probe(place, at)),
                (WAITS_FOR_RANKS, FINALIZE) => call.targets.push(AwaitedTarget::Finalize),
                (WAITS_FOR_RANKS, _) => call.targets.push(AwaitedTarget::Collective(place, at)),
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
    /// For a call that needs all of several requests: the number of complete requests, and the number of all. `None`
    /// for other calls.
    #[must_use]
    pub fn done(&self) -> Option<(u32, u32)> {
        let (done, pending) = self.requests.filter(|_| !self.is_any())?;
        Some((done, done.saturating_add(pending)))
    }

    /// Whether the call ends as soon as one of its targets is complete.
    #[must_use]
    pub fn is_any(&self) -> bool {
        ["MPI_Waitany", "MPI_Waitsome"].contains(&&*self.function)
    }
}

fn call_of_thread<'a>(
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

/// The sends of a rank that its `MPI_Finalize` waits for: those that are pending.
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

/// The collective in progress, if there is exactly one. A call with unlisted requests is assumed to wait for it,
/// because a library need not list the requests of collectives.
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

/// The library's text for a call that waits for other ranks.
pub const WAITS_FOR_RANKS: &str = "waits for the other ranks";
/// The call that waits for all ranks to finalize.
pub const FINALIZE: &str = "MPI_Finalize";
