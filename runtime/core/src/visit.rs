// SPDX-License-Identifier: MIT OR Apache-2.0
//! How threads access the process: in short visits. A waiting call makes one visit after another; tasks are polled
//! between two visits.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::awaits::{AwaitedCollective, Awaits};
use crate::tasks::{Moved, Task};
use crate::var::Variable;
use crate::var::live::live;
use crate::waiting::WaitProgress;
use crate::{Error, RequestId, Universe};

/// Access to the process, one short visit at a time. A waiting call makes many visits, and other threads may visit
/// between any two of these visits.
pub trait Visit: Copy {
    /// Runs `visit` with the process. Visits do not nest.
    fn visit<R>(self, visit: impl FnOnce(&mut Universe) -> R) -> R;

    /// Whether other threads may visit between two visits of this thread.
    fn is_shared(self) -> bool;

    /// Whether other threads are making visits at present.
    fn is_contended(self) -> bool {
        false
    }

    /// Lets other threads visit while `outside` runs.
    fn run_unlocked(self, outside: impl FnOnce());

    /// The function that the application called, for display in a debugger.
    fn function(self) -> &'static str {
        ""
    }

    /// Makes visits until `done` returns `true`. `done` is called before and after each turn of progress.
    fn wait_until(self, awaits: Awaits, mut done: impl FnMut(&mut Universe) -> bool) {
        let mut rest = WaitProgress::default();
        loop {
            let (finished, moved, tasks) = self.visit(|universe| {
                if done(universe) {
                    return (true, false, !universe.tasks.is_empty());
                }
                let moved = universe.progress();
                (done(universe), moved, !universe.tasks.is_empty())
            });
            if finished {
                self.end_note(&rest);
                // A call that never has to wait must also poll the tasks.
                if tasks {
                    self.progress_briefly();
                }
                return;
            }
            let ended = tasks && poll_tasks(self);
            if tasks {
                self.renew_note(&mut rest);
            }
            self.rest_unless(moved || ended, &mut rest, awaits);
        }
    }

    /// Polls `future`, which runs a collective, until it is ready. `patient`: whether all ranks of the node wait for
    /// each other in that collective.
    fn block_on<T>(
        self,
        patient: bool,
        awaited: AwaitedCollective,
        future: impl Future<Output = T>,
    ) -> T {
        let mut future = pin!(future);
        let mut waker = Context::from_waker(Waker::noop());
        let mut rest = WaitProgress::new(patient);
        let mut moved = true;
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut waker) {
                self.end_note(&rest);
                self.progress_briefly();
                return done;
            }
            // The future is polled after each turn, and only then does the process rest. Even a turn in which nothing
            // arrives may complete the awaited operation, for example by posting a message that had no room before.
            self.rest_unless(moved, &mut rest, Awaits::Ranks(awaited));
            moved = self.turn();
            self.renew_note(&mut rest);
        }
    }

    /// A turn of progress, and of the background tasks. `true`: something happened.
    fn turn(self) -> bool {
        let (moved, tasks) =
            self.visit(|universe| (universe.progress(), !universe.tasks.is_empty()));
        let ended = tasks && poll_tasks(self);
        moved || ended
    }

    /// A turn after tasks were started: polls the tasks from number `first` on (see
    /// [`next_number`](crate::Tasks::next_number)).
    fn turn_for_new(self, first: u64) {
        self.visit(Universe::progress);
        poll_new_tasks(self, first);
    }

    /// To be called after the start of task `number`, if that task was polled once already. Once in `ALL_EVERY` starts,
    /// makes a turn of progress and polls all tasks.
    fn turn_for_tried(self, number: u64) {
        poll_tasks_at_times(self, number);
    }

    /// For calls that do not wait: a turn of progress and of a few background tasks, if there are any tasks.
    fn progress_briefly(self) {
        let tasks =
            self.visit(|universe| !universe.tasks.is_empty() && (universe.progress(), true).1);
        if tasks {
            poll_some_tasks(self);
        }
    }

    /// Delivers events to tools, between two visits.
    #[inline(always)]
    fn deliver_events(self) {}

    /// A turn for a test call that has found nothing so far. If the rank has tested repeatedly without success and
    /// other processes need the core, yields the core or sleeps, and then makes another turn.
    fn poll_turn(self) {
        let (tasks, is_long) = self.visit(|universe| {
            let moved = universe.progress();
            (
                !universe.tasks.is_empty(),
                universe
                    .waiting
                    .polling_is_long(moved, &universe.messages.pump.fabric),
            )
        });
        let ended = tasks && poll_tasks(self);
        if is_long && !ended {
            self.rest_of_poll();
        }
    }

    /// To be called after a turn of a test call in which nothing happened. If other processes need the core, yields it
    /// or sleeps, and then makes another turn.
    #[doc(hidden)]
    #[cold]
    fn rest_of_poll(self) {
        let has_rested = if self.is_shared() {
            let pause = self.visit(|universe| {
                let fabric = &mut universe.messages.pump.fabric;
                universe.waiting.pause_of_poll(fabric)
            });
            if let Some(pause) = pause {
                self.run_unlocked(|| pause.make());
            }
            pause.is_some()
        } else {
            self.visit(Universe::rest_of_poll)
        };
        if has_rested {
            let moved = self.turn();
            self.visit(|universe| universe.waiting.polling.end_rest(moved));
        }
    }

    /// Rests after a turn of a wait, unless the turn has `moved` something.
    #[doc(hidden)]
    fn rest_unless(self, moved: bool, rest: &mut WaitProgress, awaits: Awaits) {
        self.deliver_events();
        if moved {
            rest.begin_anew();
        } else if self.is_shared() {
            if rest.becomes_long_shared() {
                let function = self.function();
                let note = |universe: &mut Universe| {
                    let (waiting, messages) = (&universe.waiting, &universe.messages);
                    waiting.note_call(messages, function, awaits)
                };
                rest.set_note(self.visit(note));
            }
            if rest.is_report_due_shared() {
                self.visit(|universe| rest.report(&universe.messages.pump.fabric, true));
            }
            let is_contended = self.is_contended();
            self.run_unlocked(|| rest.outside(is_contended));
        } else {
            self.visit(|universe| universe.rest(rest, || (self.function(), awaits)));
        }
    }

    /// Ends the record of this wait for debuggers.
    #[doc(hidden)]
    #[inline]
    fn end_note(self, rest: &WaitProgress) {
        if rest.is_long() {
            self.visit(|universe| {
                let counters = universe.messages.engine().live_counters();
                universe.waiting.end_long(rest, counters);
            });
        }
    }

    /// If this wait in a collective has a record for debuggers, and something has arrived since the last call: renews
    /// the record. A debugger that reads the record twice and finds it unchanged can conclude that nothing arrived
    /// between the two reads.
    #[doc(hidden)]
    #[inline]
    fn renew_note(self, rest: &mut WaitProgress) {
        if rest.is_noted() {
            self.visit(|universe| universe.waiting.renew_note(rest, universe.completions_seen));
        }
    }

    /// Waits for one request.
    #[inline]
    fn wait_for(self, request: RequestId) {
        self.wait_until(Awaits::Request(request), |universe| {
            universe.messages.is_complete(request)
        });
    }
}

/// Polls a new task that is not in the list yet. If the task does not end, makes a turn of progress, and if something
/// happens in that turn, polls the task once more.
///
/// # Errors
/// The task, if it has not ended. The caller must [start](crate::Tasks::start) it, because its memory is lent until it
/// ends.
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

/// Polls each task once, except those that other threads are polling. `true`: a task has ended, or something else
/// happened.
fn poll_tasks<V: Visit>(visit: V) -> bool {
    poll_tasks_from(visit, 0)
}

/// Polls each task from number `from` on once, except those that other threads are polling. Returns what [`poll_tasks`]
/// returns.
fn poll_tasks_from<V: Visit>(visit: V, from: u64) -> bool {
    let before = visit.visit(|universe| universe.completions_seen);
    let (mut any, mut from) = (false, from);
    while let Some((number, task)) = visit.visit(|universe| universe.tasks.take(from)) {
        any |= poll(visit, number, task);
        from = number + 1;
    }
    // A send in a task may have made the process poll the transport.
    any || visit.visit(|universe| universe.completions_seen) != before
}

/// Polls the new tasks from number `from` on. Only once in `ALL_EVERY` starts, polls all tasks: a program that starts
/// many tasks must not poll all of them at each start.
fn poll_new_tasks<V: Visit>(visit: V, from: u64) {
    let next = visit.visit(|universe| universe.tasks.next_number());
    let all = from / ALL_EVERY != next / ALL_EVERY;
    poll_tasks_from(visit, if all { 0 } else { from });
}

/// After every `ALL_EVERY`-th start: makes a turn of progress and polls all tasks. `number`: the number of the task
/// that was just started.
fn poll_tasks_at_times<V: Visit>(visit: V, number: u64) {
    if (number + 1).is_multiple_of(ALL_EVERY) {
        visit.visit(Universe::progress);
        poll_tasks_from(visit, 0);
    }
}

/// Polls a few tasks; the next call polls the tasks after these.
fn poll_some_tasks<V: Visit>(visit: V) {
    let count = visit.visit(|universe| universe.tasks.count());
    let some = usize::try_from(live(Variable::TasksPerCall)).unwrap_or(usize::MAX);
    for _ in 0..count.min(some) {
        let Some((number, task)) = visit.visit(|universe| universe.tasks.take_next()) else {
            return;
        };
        poll(visit, number, task);
    }
}

/// Polls a task that was taken out. `true`: it has ended.
fn poll<V: Visit>(visit: V, number: u64, mut task: Task) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    match task.as_mut().poll(&mut context) {
        Poll::Pending => {
            visit.visit(|universe| universe.tasks.put_back(number, task));
            false
        }
        Poll::Ready(result) => {
            visit.visit(|universe| universe.tasks.end(&mut universe.messages, number, result));
            true
        }
    }
}

/// All tasks are polled once in this many starts.
const ALL_EVERY: u64 = 64;

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use engine::{ContextId, Peer};
    use transport::{Config, Fabric};

    use super::*;
    use crate::var::VariableValues;
    use crate::var::live::change;

    /// Number of tasks per partial poll, by default.
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

        fn run_unlocked(self, outside: impl FnOnce()) {
            outside();
        }
    }

    fn alone() -> RefCell<Universe> {
        let (values, _) = VariableValues::from_environment(std::iter::empty());
        let fabric = Fabric::open(Config::alone()).unwrap();
        RefCell::new(Universe::new(fabric, Peer(0), 1, &values))
    }

    /// A task that never ends and counts its polls.
    fn waiting(polls: &Rc<Cell<usize>>) -> Task {
        let polls = Rc::clone(polls);
        Box::pin(std::future::poll_fn(move |_| {
            polls.set(polls.get() + 1);
            Poll::Pending
        }))
    }

    fn start(hand: Hand<'_>, task: Task) -> RequestId {
        hand.visit(|universe| {
            let request = universe
                .tasks
                .reserve(&mut universe.messages, ContextId(0))
                .unwrap();
            universe.tasks.start(request, task);
            request
        })
    }

    #[test]
    fn starting_many_tasks_does_not_poll_all_each_time() {
        const MANY: usize = 1000;
        let universe = alone();
        let hand = Hand(&universe);
        let polls = Rc::new(Cell::new(0));
        for _ in 0..MANY {
            let first = hand.visit(|universe| universe.tasks.next_number());
            start(hand, waiting(&polls));
            hand.turn_for_new(first);
        }
        let squares = MANY * MANY / 64;
        assert!((MANY..MANY + squares).contains(&polls.get()), "{polls:?}");
    }

    #[test]
    fn calls_that_do_not_wait_poll_some_tasks_in_turn() {
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
            hand.progress_briefly();
        }
        assert!(polls.iter().all(|polls| polls.get() == 3), "{polls:?}");
        change(Variable::TasksPerCall, 4);
        for _ in 0..3 {
            hand.progress_briefly();
        }
        change(Variable::TasksPerCall, 8);
        let four = polls.iter().filter(|polls| polls.get() == 4);
        assert_eq!(four.count(), 3 * 4, "{polls:?}");
    }

    #[test]
    fn task_status_has_its_bytes_until_collected() {
        let universe = alone();
        let hand = Hand(&universe);
        for bytes in [0, 1, 5 << 40] {
            let request = start(hand, Box::pin(async move { Ok(Moved { bytes }) }));
            assert!(poll_tasks(hand));
            let status = hand.visit(|universe| {
                assert!(universe.messages.is_complete(request));
                assert_eq!(universe.status(request).bytes, bytes);
                universe.collect(request)
            });
            assert_eq!((status.bytes, status.source), (bytes, None));
            assert!(status.error.is_none() && !status.cancelled);
        }
        assert!(universe.borrow().tasks.has_no_outcomes());
    }

    #[test]
    fn a_task_being_polled_is_not_polled_again() {
        let universe = alone();
        let hand = Hand(&universe);
        // The universe is dropped before this test ends.
        let (other, polls) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let first = start(hand, waiting(&other));
        let (number, task) = hand.visit(|universe| universe.tasks.take(0)).unwrap();
        start(hand, waiting(&polls));
        assert!(!poll_tasks(hand));
        assert_eq!((other.get(), polls.get()), (0, 1));
        assert!(hand.visit(|universe| universe.tasks.is_running(first)));
        assert!(!poll(hand, number, task));
        poll_tasks(hand);
        assert_eq!((other.get(), polls.get()), (2, 2));
    }

    /// Access to a process that other threads visit too. It counts the turns, and the rests during which other threads
    /// could visit.
    #[derive(Clone, Copy)]
    struct Counting<'a> {
        universe: &'a RefCell<Universe>,
        turns: &'a Cell<u32>,
        rests: &'a Cell<u32>,
    }

    impl Visit for Counting<'_> {
        fn visit<R>(self, visit: impl FnOnce(&mut Universe) -> R) -> R {
            visit(&mut self.universe.borrow_mut())
        }

        fn is_shared(self) -> bool {
            true
        }

        fn run_unlocked(self, _outside: impl FnOnce()) {
            self.rests.set(self.rests.get() + 1);
        }

        fn turn(self) -> bool {
            self.turns.set(self.turns.get() + 1);
            false
        }
    }

    #[test]
    fn a_collective_checks_for_completion_before_it_sleeps() {
        let (values, _) = VariableValues::from_environment(std::iter::empty());
        let fabric = Fabric::open(Config::alone()).unwrap();
        let universe = RefCell::new(Universe::new(fabric, Peer(0), 1, &values));
        let (turns, rests) = (Cell::new(0), Cell::new(0));
        let process = Counting {
            universe: &universe,
            turns: &turns,
            rests: &rests,
        };
        for needed in [0, 1, 2, 5] {
            turns.set(0);
            rests.set(0);
            let ended = std::future::poll_fn(|_| match turns.get() >= needed {
                true => Poll::Ready(()),
                false => Poll::Pending,
            });
            let awaited = AwaitedCollective {
                context: ContextId(0),
                call: None,
                root: None,
                bytes: None,
            };
            process.block_on(false, awaited, ended);
            assert_eq!(rests.get(), needed.saturating_sub(1), "after {needed}");
        }
    }
}
