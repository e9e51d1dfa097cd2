// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives in the background: nonblocking and persistent ones (MPI 5.0 sections 6.12 and 6.13).
//!
//! A task is polled between two visits, not during a visit, so it may call the application's reduction operations.
//! Other threads may visit while a task is polled: they find its entry in the list without the task, and skip it. The
//! memory of a task is lent until the task ends, so the task must not be dropped before it has ended.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use engine::{ContextId, RequestId};
use rustc_hash::FxHashMap;

use crate::Error;
use crate::messages::Messages;
use crate::operation::exhausted;

/// The result of a task, for the status of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Number of bytes for `MPI_Get_count`; 0 for a collective, which has no byte count.
    pub bytes: u64,
}

/// An operation in progress.
pub type Task = Pin<Box<dyn Future<Output = Result<Moved, Error>>>>;

/// Makes the task of each start of a persistent collective.
pub type Starter = Box<dyn Fn() -> Task>;

/// All tasks in progress, and the results of tasks that have ended.
#[derive(Default)]
pub struct Tasks {
    /// The tasks in progress, in the order of their starts. They are polled in this order.
    running: VecDeque<RunningTask>,
    started: u64,
    /// Number of the task at which the next partial poll begins.
    cursor: u64,
    starters: FxHashMap<u32, Starter>,
    /// Results of tasks that have ended, by token of the request, until the request is freed or becomes inactive.
    ended: FxHashMap<u32, Result<Moved, Arc<Error>>>,
}

/// A task that was started and has not ended.
struct RunningTask {
    /// Sequence number of the start.
    number: u64,
    request: RequestId,
    /// `None` while a thread polls it.
    task: Option<Task>,
}

impl Tasks {
    /// Index of the first task whose number is at least `number`.
    fn place_from(&self, number: u64) -> usize {
        match self.running.front() {
            Some(first) if first.number < number => self
                .running
                .partition_point(|running| running.number < number),
            _ => 0,
        }
    }

    /// Index of the task with this number; `None`: it has ended.
    fn place(&self, number: u64) -> Option<usize> {
        let place = self.place_from(number);
        let running = self.running.get(place)?;
        (running.number == number).then_some(place)
    }

    /// Takes out the first task with a number of at least `from` that no thread is polling. The caller must poll it.
    /// `None`: there is no such task.
    pub(crate) fn take(&mut self, from: u64) -> Option<(u64, Task)> {
        let place = self.place_from(from);
        let mut later = self.running.range_mut(place..);
        later.find_map(|running| Some((running.number, running.task.take()?)))
    }

    /// Takes out the next task after the one that the last call of this method took; after the last task, the first
    /// one. `None`: no task is in progress, or threads are polling all of them.
    pub(crate) fn take_next(&mut self) -> Option<(u64, Task)> {
        let taken = self.take(self.cursor).or_else(|| self.take(0))?;
        self.cursor = taken.0 + 1;
        Some(taken)
    }

    pub(crate) fn put_back(&mut self, number: u64, task: Task) {
        if let Some(place) = self.place(number) {
            self.running[place].task = Some(task);
        }
    }

    /// Removes a task that has ended, and returns its request.
    fn remove(&mut self, number: u64) -> Option<RequestId> {
        let place = self.place(number)?;
        Some(self.running.remove(place)?.request)
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tasks({} under way)", self.running.len())
    }
}

impl Tasks {
    /// Reserves a request for a task. The caller must then [start](Self::start) the task, or [give up](Self::give_up)
    /// the request.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn reserve(
        &mut self,
        messages: &mut Messages,
        context: ContextId,
    ) -> Result<RequestId, Error> {
        let reserved = messages.pump.engine.start_other(context);
        reserved.map_err(|_| exhausted())
    }

    /// Starts the task of a reserved request; it is polled after the next turn of progress.
    pub fn start(&mut self, request: RequestId, task: Task) {
        self.running.push_back(RunningTask {
            number: self.started,
            request,
            task: Some(task),
        });
        self.started += 1;
    }

    /// Frees a reserved request that is not needed.
    pub fn give_up(&mut self, messages: &mut Messages, request: RequestId) {
        messages.pump.engine.give_up_other(request);
    }

    /// Makes an inactive persistent request. Each start of the request runs a task that `starter` makes.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn prepare(
        &mut self,
        messages: &mut Messages,
        context: ContextId,
        starter: Starter,
    ) -> Result<RequestId, Error> {
        let prepared = messages.pump.engine.prepare_other(context);
        let request = prepared.map_err(|_| exhausted())?;
        self.starters.insert(messages.token(request), starter);
        Ok(request)
    }

    /// Starts an inactive persistent request that has a task. `false`: the request has no task.
    pub(crate) fn restart(&mut self, messages: &mut Messages, request: RequestId) -> bool {
        let token = messages.token(request);
        let Some(starter) = self.starters.get(&token) else {
            return false;
        };
        let task = starter();
        self.ended.remove(&token);
        messages.pump.engine.restart_other(request);
        self.start(request, task);
        true
    }

    /// Whether the request's task is in progress.
    #[must_use]
    pub fn is_running(&self, request: RequestId) -> bool {
        let mut running = self.running.iter();
        running.any(|running| running.request == request)
    }

    /// The number of the next task to be started.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.started
    }

    /// Whether no task is in progress.
    #[inline(always)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Number of tasks in progress.
    pub(crate) fn count(&self) -> usize {
        self.running.len()
    }

    /// The result of the task of a complete request. `None`: the request had no task.
    pub(crate) fn outcome(
        &self,
        messages: &Messages,
        request: RequestId,
    ) -> Option<Result<Moved, Error>> {
        if self.ended.is_empty() {
            return None;
        }
        let ended = self.ended.get(&messages.token(request))?;
        Some(ended.clone().map_err(Error::Collective))
    }

    /// Drops the result of a request that was waited for or tested; if it was freed (`for_good`), also its starter.
    pub(crate) fn forget(&mut self, messages: &Messages, request: RequestId, for_good: bool) {
        if self.ended.is_empty() && self.starters.is_empty() {
            return;
        }
        let token = messages.token(request);
        self.ended.remove(&token);
        if for_good {
            self.starters.remove(&token);
        }
    }

    /// Records that a task that was taken out has ended with `result`, and completes its request.
    pub(crate) fn end(
        &mut self,
        messages: &mut Messages,
        number: u64,
        result: Result<Moved, Error>,
    ) {
        if let Some(request) = self.remove(number) {
            let token = messages.token(request);
            self.ended.insert(token, result.map_err(Arc::new));
            messages.pump.engine.finish_other(request, None);
        }
    }
}

#[cfg(test)]
impl Tasks {
    pub(crate) fn has_no_outcomes(&self) -> bool {
        self.ended.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_end_in_any_order_and_others_keep_their_numbers() {
        let mut tasks = Tasks::default();
        let requests = [7, 8, 9].map(RequestId);
        for request in requests {
            tasks.start(request, Box::pin(std::future::pending()));
        }
        assert_eq!(tasks.remove(1), Some(requests[1]));
        assert_eq!(tasks.remove(1), None);
        assert_eq!((tasks.running.len(), tasks.started), (2, 3));
        let (number, task) = tasks.take(1).unwrap();
        assert_eq!(number, 2);
        tasks.put_back(number, task);
        assert_eq!(tasks.remove(0), Some(requests[0]));
        assert_eq!(tasks.take(0).map(|(number, _)| number), Some(2));
        assert_eq!(tasks.remove(2), Some(requests[2]));
        assert_eq!((tasks.running.len(), tasks.started), (0, 3));
    }
}
