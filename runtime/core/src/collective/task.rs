// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives that go on in the background: nonblocking and persistent ones (MPI 5.0 sections 6.12 and 6.13).
//!
//! A task is polled between visits, never during one, so that it may call operations of the application's own. Other threads
//! may visit meanwhile: they find the request in the list but not its task, and leave it alone. A task's memory is lent
//! until it ends; so it is dropped only then.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use engine::{ContextId, RequestId};

use crate::{Error, Universe, Visit};

/// A collective on its way.
pub type Task = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

/// Makes the task of each start of a persistent collective.
pub type Starter = Box<dyn Fn() -> Task>;

/// All that is under way, and how what has ended did.
#[derive(Default)]
pub(crate) struct Tasks {
    /// By the number of the start, which is the order in which they are polled.
    running: BTreeMap<u64, Running>,
    started: u64,
    starters: HashMap<u32, Starter>,
    /// By token, until the request is collected.
    ended: HashMap<u32, Option<Arc<Error>>>,
}

struct Running {
    request: RequestId,
    /// `None` while somebody polls it.
    task: Option<Task>,
}

impl Tasks {
    fn start(&mut self, request: RequestId, task: Task) {
        let task = Some(task);
        self.running.insert(self.started, Running { request, task });
        self.started += 1;
    }

    /// Takes the first task from number `from` on to poll it, if nobody else does.
    fn take(&mut self, from: u64) -> Option<(u64, Task)> {
        let mut later = self.running.range_mut(from..);
        later.find_map(|(number, running)| Some((*number, running.task.take()?)))
    }

    fn put_back(&mut self, number: u64, task: Task) {
        if let Some(running) = self.running.get_mut(&number) {
            running.task = Some(task);
        }
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tasks({} under way)", self.running.len())
    }
}

impl Universe {
    /// A request for a task that begins with the next turn of progress.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn start_task(&mut self, context: ContextId, task: Task) -> Result<RequestId, Error> {
        let request = self
            .engine
            .start_other(context)
            .map_err(|_| crate::p2p::exhausted())?;
        self.tasks.start(request, task);
        Ok(request)
    }

    /// An inactive persistent request, whose starts begin the tasks that `starter` makes.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn prepare_task(
        &mut self,
        context: ContextId,
        starter: Starter,
    ) -> Result<RequestId, Error> {
        let request = self
            .engine
            .prepare_other(context)
            .map_err(|_| crate::p2p::exhausted())?;
        let token = self.token(request);
        self.tasks.starters.insert(token, starter);
        Ok(request)
    }

    /// Starts a persistent task that is inactive; `false`: the request is none.
    pub(crate) fn restart_task(&mut self, request: RequestId) -> bool {
        let token = self.token(request);
        let Some(starter) = self.tasks.starters.get(&token) else {
            return false;
        };
        let task = starter();
        self.tasks.ended.remove(&token);
        self.engine.restart_other(request);
        self.tasks.start(request, task);
        true
    }

    /// Whether the request stands for a task that is under way.
    #[must_use]
    pub fn is_running_task(&self, request: RequestId) -> bool {
        let mut running = self.tasks.running.values();
        running.any(|running| running.request == request)
    }

    /// Whether any task is under way.
    #[inline(always)]
    pub(crate) fn has_tasks(&self) -> bool {
        !self.tasks.running.is_empty()
    }

    /// How the task of a complete request ended; `None`: it is no task's.
    pub(crate) fn outcome(&self, request: RequestId) -> Option<Option<Error>> {
        if self.tasks.ended.is_empty() {
            return None;
        }
        let ended = self.tasks.ended.get(&self.token(request))?;
        Some(ended.clone().map(Error::Collective))
    }

    /// The request was collected, or given up for good.
    pub(crate) fn forget_outcome(&mut self, request: RequestId, for_good: bool) {
        let Tasks {
            ended, starters, ..
        } = &mut self.tasks;
        if ended.is_empty() && starters.is_empty() {
            return;
        }
        let token = self.engine.arena().token(request);
        ended.remove(&token);
        if for_good {
            starters.remove(&token);
        }
    }

    fn end_task(&mut self, number: u64, result: Result<(), Error>) {
        if let Some(Running { request, .. }) = self.tasks.running.remove(&number) {
            let token = self.token(request);
            self.tasks.ended.insert(token, result.err().map(Arc::new));
            self.engine.finish_other(request, None);
        }
    }
}

/// Polls every task once that nobody else polls; `true` if one has ended.
pub(crate) fn go_on<V: Visit>(visit: V) -> bool {
    let mut any = false;
    let mut from = 0;
    while let Some((number, task)) = visit.visit(|universe| universe.tasks.take(from)) {
        any |= poll(visit, number, task);
        from = number + 1;
    }
    any
}

/// Polls a task that was taken out; `true` if it has ended.
fn poll<V: Visit>(visit: V, number: u64, mut task: Task) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    match task.as_mut().poll(&mut context) {
        Poll::Pending => {
            visit.visit(|universe| universe.tasks.put_back(number, task));
            false
        }
        Poll::Ready(result) => {
            visit.visit(|universe| universe.end_task(number, result));
            true
        }
    }
}
