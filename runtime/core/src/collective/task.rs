// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives that go on in the background: nonblocking and persistent ones (MPI 5.0 sections 6.12 and 6.13).
//!
//! A task is polled between visits, never during one, so that it may call operations of the application's own. Other threads
//! may visit meanwhile: they find the request in the list but not its task, and leave it alone. A task's memory is lent
//! until it ends; so it is dropped only then.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use engine::{ContextId, RequestId};
use rustc_hash::FxHashMap;

use crate::var::Variable;
use crate::var::live::live;
use crate::{Error, Universe, Visit};

/// What a task has done, for the status of its request. A collective tells of no bytes; an operation on a file would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes that it has moved (`MPI_Get_count`).
    pub bytes: u64,
}

/// An operation on its way.
pub type Task = Pin<Box<dyn Future<Output = Result<Moved, Error>>>>;

/// Makes the task of each start of a persistent collective.
pub type Starter = Box<dyn Fn() -> Task>;

/// All that is under way, and how what has ended did.
#[derive(Default)]
pub(crate) struct Tasks {
    /// In the order of their starts, which is that in which they are polled.
    running: VecDeque<Running>,
    started: u64,
    /// Where the next poll of a few begins.
    cursor: u64,
    starters: FxHashMap<u32, Starter>,
    /// By token, until the request is collected.
    ended: FxHashMap<u32, Result<Moved, Arc<Error>>>,
}

struct Running {
    /// The number of the start.
    number: u64,
    request: RequestId,
    /// `None` while somebody polls it.
    task: Option<Task>,
}

impl Tasks {
    fn start(&mut self, request: RequestId, task: Task) {
        self.running.push_back(Running {
            number: self.started,
            request,
            task: Some(task),
        });
        self.started += 1;
    }

    /// Where the first one from this number on stands.
    fn place_from(&self, number: u64) -> usize {
        match self.running.front() {
            Some(first) if first.number < number => self
                .running
                .partition_point(|running| running.number < number),
            _ => 0,
        }
    }

    /// Where the one of this number stands.
    fn place(&self, number: u64) -> Option<usize> {
        let place = self.place_from(number);
        let running = self.running.get(place)?;
        (running.number == number).then_some(place)
    }

    /// Takes the first task from number `from` on to poll it, if nobody else does.
    fn take(&mut self, from: u64) -> Option<(u64, Task)> {
        let place = self.place_from(from);
        let mut later = self.running.range_mut(place..);
        later.find_map(|running| Some((running.number, running.task.take()?)))
    }

    /// Takes the next one in turn.
    fn take_next(&mut self) -> Option<(u64, Task)> {
        let taken = self.take(self.cursor).or_else(|| self.take(0))?;
        self.cursor = taken.0 + 1;
        Some(taken)
    }

    fn put_back(&mut self, number: u64, task: Task) {
        if let Some(place) = self.place(number) {
            self.running[place].task = Some(task);
        }
    }

    /// The request of a task that has ended, which is forgotten.
    fn end(&mut self, number: u64) -> Option<RequestId> {
        let place = self.place(number)?;
        Some(self.running.remove(place)?.request)
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tasks({} under way)", self.running.len())
    }
}

impl Universe {
    /// A request for a task that is to be [started](Self::start_task), or [given up](Self::give_up_task) as it need not be.
    ///
    /// # Errors
    /// When no request slot is left.
    pub fn reserve_task(&mut self, context: ContextId) -> Result<RequestId, Error> {
        let reserved = self.messages.pump.engine.start_other(context);
        reserved.map_err(|_| crate::operation::exhausted())
    }

    /// The task begins, or goes on, with the next turn of progress.
    pub fn start_task(&mut self, request: RequestId, task: Task) {
        self.tasks.start(request, task);
    }

    /// The reserved request is not needed.
    pub fn give_up_task(&mut self, request: RequestId) {
        self.messages.pump.engine.give_up_other(request);
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
            .messages
            .pump
            .engine
            .prepare_other(context)
            .map_err(|_| crate::operation::exhausted())?;
        let token = self.messages.token(request);
        self.tasks.starters.insert(token, starter);
        Ok(request)
    }

    /// Starts a persistent task that is inactive; `false`: the request is none.
    pub(crate) fn restart_task(&mut self, request: RequestId) -> bool {
        let token = self.messages.token(request);
        let Some(starter) = self.tasks.starters.get(&token) else {
            return false;
        };
        let task = starter();
        self.tasks.ended.remove(&token);
        self.messages.pump.engine.restart_other(request);
        self.tasks.start(request, task);
        true
    }

    /// Whether the request stands for a task that is under way.
    #[must_use]
    pub fn is_running_task(&self, request: RequestId) -> bool {
        let mut running = self.tasks.running.iter();
        running.any(|running| running.request == request)
    }

    /// The number that the next task to be started gets.
    #[must_use]
    pub fn next_task(&self) -> u64 {
        self.tasks.started
    }

    /// Whether any task is under way.
    #[inline(always)]
    #[must_use]
    pub fn has_tasks(&self) -> bool {
        !self.tasks.running.is_empty()
    }

    /// How the task of a complete request ended; `None`: it is no task's.
    pub(crate) fn outcome(&self, request: RequestId) -> Option<Result<Moved, Error>> {
        if self.tasks.ended.is_empty() {
            return None;
        }
        let ended = self.tasks.ended.get(&self.messages.token(request))?;
        Some(ended.clone().map_err(Error::Collective))
    }

    /// The request was collected, or given up for good.
    pub(crate) fn forget_outcome(&mut self, request: RequestId, for_good: bool) {
        let Tasks {
            ended, starters, ..
        } = &mut self.tasks;
        if ended.is_empty() && starters.is_empty() {
            return;
        }
        let token = self.messages.pump.engine.arena().token(request);
        ended.remove(&token);
        if for_good {
            starters.remove(&token);
        }
    }

    fn end_task(&mut self, number: u64, result: Result<Moved, Error>) {
        if let Some(request) = self.tasks.end(number) {
            let token = self.messages.token(request);
            self.tasks.ended.insert(token, result.map_err(Arc::new));
            self.messages.pump.engine.finish_other(request, None);
        }
    }
}

/// Polls a new task that nobody else knows of yet, once, and once more if something has come since. `Err`: it has not ended.
///
/// # Errors
/// The task, which must be [started](Universe::start_task): its memory is lent.
pub fn try_at_once<V: Visit>(visit: V, mut task: Task) -> Result<Result<Moved, Error>, Task> {
    let mut context = Context::from_waker(Waker::noop());
    if let Poll::Ready(result) = task.as_mut().poll(&mut context) {
        return Ok(result);
    }
    if visit.visit(Universe::progress)
        && let Poll::Ready(result) = task.as_mut().poll(&mut context)
    {
        return Ok(result);
    }
    Err(task)
}

/// Polls every task once that nobody else polls; `true` if one has ended, or anything else happened meanwhile.
pub(crate) fn go_on<V: Visit>(visit: V) -> bool {
    go_on_from(visit, 0)
}

/// The same of those from number `from` on.
pub(crate) fn go_on_from<V: Visit>(visit: V, from: u64) -> bool {
    let before = visit.visit(|universe| universe.turned_up);
    let (mut any, mut from) = (false, from);
    while let Some((number, task)) = visit.visit(|universe| universe.tasks.take(from)) {
        any |= poll(visit, number, task);
        from = number + 1;
    }
    // What a task sent may have made the process look at the transport.
    any || visit.visit(|universe| universe.turned_up) != before
}

/// The same of the new ones from number `from` on, and now and then of all: who starts many must not poll all each time.
pub(crate) fn go_on_new<V: Visit>(visit: V, from: u64) {
    let next = visit.visit(|universe| universe.next_task());
    let all = from / ALL_EVERY != next / ALL_EVERY;
    go_on_from(visit, if all { 0 } else { from });
}

/// Polls all now and then: after start `number`, of a task that was polled before that, if it is the turn of all.
pub(crate) fn go_on_at_times<V: Visit>(visit: V, number: u64) {
    if (number + 1).is_multiple_of(ALL_EVERY) {
        visit.visit(Universe::progress);
        go_on_from(visit, 0);
    }
}

/// Polls a few, others the next time.
pub(crate) fn go_on_some<V: Visit>(visit: V) {
    let count = visit.visit(|universe| universe.tasks.running.len());
    let some = usize::try_from(live(Variable::TasksPerCall)).unwrap_or(usize::MAX);
    for _ in 0..count.min(some) {
        let Some((number, task)) = visit.visit(|universe| universe.tasks.take_next()) else {
            return;
        };
        poll(visit, number, task);
    }
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

/// Starts between two polls of all tasks by starts alone.
const ALL_EVERY: u64 = 64;

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use engine::Peer;
    use transport::{Config, Fabric};

    use super::*;
    use crate::Awaits;
    use crate::var::Values;
    use crate::var::live::change;

    /// The default.
    const SOME: usize = 8;

    #[derive(Clone, Copy)]
    struct Hand<'a>(&'a RefCell<Universe>);

    impl Visit for Hand<'_> {
        fn visit<R>(self, visit: impl FnOnce(&mut Universe) -> R) -> R {
            visit(&mut self.0.borrow_mut())
        }

        fn is_shared(self) -> bool {
            false
        }

        fn let_others(self, outside: impl FnOnce()) {
            outside();
        }
    }

    fn alone() -> RefCell<Universe> {
        let (values, _) = Values::from_environment(std::iter::empty());
        let fabric = Fabric::open(Config::alone()).unwrap();
        RefCell::new(Universe::new(fabric, Peer(0), 1, &values))
    }

    /// A task that never ends and counts how often it was asked.
    fn waiting(polls: &Rc<Cell<usize>>) -> Task {
        let polls = Rc::clone(polls);
        Box::pin(std::future::poll_fn(move |_| {
            polls.set(polls.get() + 1);
            Poll::Pending
        }))
    }

    fn start(hand: Hand<'_>, task: Task) -> RequestId {
        hand.visit(|universe| {
            let request = universe.reserve_task(ContextId(0)).unwrap();
            universe.start_task(request, task);
            request
        })
    }

    #[test]
    fn starting_many_does_not_poll_all_of_them_each_time() {
        const MANY: usize = 1000;
        let universe = alone();
        let hand = Hand(&universe);
        let polls = Rc::new(Cell::new(0));
        for _ in 0..MANY {
            let first = hand.visit(|universe| universe.next_task());
            start(hand, waiting(&polls));
            hand.turn_for_new(first);
        }
        let squares = MANY * MANY / 64;
        assert!((MANY..MANY + squares).contains(&polls.get()), "{polls:?}");
    }

    #[test]
    fn a_few_are_polled_in_turn_by_whoever_has_nothing_to_wait_for() {
        let universe = alone();
        let hand = Hand(&universe);
        let polls: Vec<_> = (0..3 * SOME).map(|_| Rc::default()).collect();
        for polls in &polls {
            start(hand, waiting(polls));
        }
        for _ in 0..6 {
            hand.wait_until(Awaits::Other, |_| true);
        }
        assert!(polls.iter().all(|polls| polls.get() == 2), "{polls:?}");
        for _ in 0..3 {
            hand.tend();
        }
        assert!(polls.iter().all(|polls| polls.get() == 3), "{polls:?}");
        change(Variable::TasksPerCall, 4);
        for _ in 0..3 {
            hand.tend();
        }
        change(Variable::TasksPerCall, 8);
        let four = polls.iter().filter(|polls| polls.get() == 4);
        assert_eq!(four.count(), 3 * 4, "{polls:?}");
    }

    #[test]
    fn the_status_of_a_task_says_what_it_has_moved_until_it_is_collected() {
        let universe = alone();
        let hand = Hand(&universe);
        for bytes in [0, 1, 5 << 40] {
            let request = start(hand, Box::pin(async move { Ok(Moved { bytes }) }));
            assert!(go_on(hand));
            let status = hand.visit(|universe| {
                assert!(universe.messages.is_complete(request));
                assert_eq!(universe.status(request).bytes, bytes);
                universe.collect(request)
            });
            assert_eq!((status.bytes, status.source), (bytes, None));
            assert!(status.error.is_none() && !status.cancelled);
        }
        assert!(universe.borrow().tasks.ended.is_empty());
    }

    #[test]
    fn tasks_end_in_any_order_and_those_that_remain_keep_their_numbers() {
        let mut tasks = Tasks::default();
        let requests = [7, 8, 9].map(RequestId);
        for request in requests {
            tasks.start(request, Box::pin(std::future::pending()));
        }
        assert_eq!(tasks.end(1), Some(requests[1]));
        assert_eq!(tasks.end(1), None);
        assert_eq!((tasks.running.len(), tasks.started), (2, 3));
        let (number, task) = tasks.take(1).unwrap();
        assert_eq!(number, 2);
        tasks.put_back(number, task);
        assert_eq!(tasks.end(0), Some(requests[0]));
        assert_eq!(tasks.take(0).map(|(number, _)| number), Some(2));
        assert_eq!(tasks.end(2), Some(requests[2]));
        assert_eq!((tasks.running.len(), tasks.started), (0, 3));
    }

    #[test]
    fn a_task_that_is_being_polled_is_under_way_and_left_alone() {
        let universe = alone();
        let hand = Hand(&universe);
        // The whole life of the universe ends before this test does.
        let (other, polls) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let first = start(hand, waiting(&other));
        let (number, task) = hand.visit(|universe| universe.tasks.take(0)).unwrap();
        start(hand, waiting(&polls));
        assert!(!go_on(hand));
        assert_eq!((other.get(), polls.get()), (0, 1));
        assert!(hand.visit(|universe| universe.is_running_task(first)));
        assert!(!poll(hand, number, task));
        go_on(hand);
        assert_eq!((other.get(), polls.get()), (2, 2));
    }
}
