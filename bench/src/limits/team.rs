// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes that measure together: this process (member 0) and its children, each bound to a CPU, with one arena
//! of shared memory.
//!
//! A batch has these steps: member 0 posts a command and wakes the others; each reports that it is ready; member 0
//! starts its clock, and all run the task; each reports that it has finished. So the measured time includes neither
//! wake-up nor set-up.

use nix::libc;
use std::cell::{Cell, RefCell};
use std::hint::spin_loop;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use core_affinity::CoreId;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::frames::LinkEnd;
use super::raw::{Arena, CacheLine, allow_tracing, futex_wait, futex_wake};
use super::tasks::{LimitBatch, LimitTask};
use crate::Error;
use crate::stats::Summary;

/// Number of distinct buffers over which large copies rotate.
pub(super) const BUFFERS: usize = 64;
/// Maximum size of one copy, in bytes.
pub(super) const LARGEST: usize = 4 << 20;
/// Number of cache lines in an arena. First come the lines of the command, of failures and of members; tasks use the
/// lines from [`WORK`] on.
const LINES: usize = 512;
const COMMAND: usize = 0;
const FAILURE: usize = 1;
const MEMBERS: usize = 8;
const MOST_MEMBERS: usize = 128;
/// The first line that tasks may use.
pub(super) const WORK: usize = 256;

const BATCH: Duration = Duration::from_micros(500);
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Why a member stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// This member made no progress for a minute.
    Stuck,
    /// Another failure of this member, or any failure of another member. Holds the `errno` of the system call that
    /// failed, or for other failures an `errno` that stands for them.
    Refused(i32),
}

impl Halt {
    /// The bytes that arrived are wrong; reported as an `errno` that no call used here returns.
    pub(super) const WRONG_BYTES: Self = Self::Refused(libc::EILSEQ);
}

impl From<Halt> for Error {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Stuck => {
                Self::Limit("a measuring process made no progress for a minute".to_owned())
            }
            Halt::WRONG_BYTES => {
                Self::Limit("the bytes that arrived are not those that were sent".to_owned())
            }
            Halt::Refused(errno) => Self::Limit(
                std::io::Error::from_raw_os_error(errno)
                    .to_string()
                    .to_lowercase(),
            ),
        }
    }
}

/// One process's view of the team.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) arena: Arena,
    pub(super) index: usize,
    pub(super) members: usize,
    /// Private memory that other members read and write; made when a task first needs it.
    pub(super) buffers: RefCell<Vec<u8>>,
    /// Whether [`Member::spin`] executes a pause instruction after each unsuccessful poll.
    pub(super) pauses: Cell<bool>,
    /// The DPDK device of this member; empty if it has none.
    device: String,
    /// This end of the DPDK link; opened when a task first needs it.
    end: RefCell<Option<LinkEnd>>,
}

impl Member {
    fn new(arena: Arena, index: usize, members: usize, device: &str) -> Self {
        Self {
            device: device.to_owned(),
            end: RefCell::default(),
            arena,
            index,
            members,
            buffers: RefCell::new(Vec::new()),
            pauses: Cell::new(false),
        }
    }

    /// A line that tasks may use.
    pub(super) fn work(&self, index: usize) -> &CacheLine {
        &self.arena.lines()[WORK + index]
    }

    /// The line of a member: `seq` is the round that it is ready for, word 0 the round that it has finished, word 1 its
    /// process id, word 2 the address of its buffers. Words 3 and 4 are for tasks.
    pub(super) fn line_of(&self, member: usize) -> &CacheLine {
        &self.arena.lines()[MEMBERS + member]
    }

    /// Spins until `ready` returns `true`.
    #[inline]
    pub(super) fn spin(&self, mut ready: impl FnMut() -> bool) -> Result<(), Halt> {
        let mut since = None;
        let pauses = self.pauses.get();
        loop {
            for _ in 0..20_000 {
                if ready() {
                    return Ok(());
                }
                if pauses {
                    spin_loop();
                }
            }
            self.check_alive(&mut since)?;
        }
    }

    /// Waits until `ready` returns `true`, and yields the CPU after each call that returns `false`.
    pub(super) fn yield_until(&self, ready: impl Fn() -> bool) -> Result<(), Halt> {
        let mut since = None;
        loop {
            for _ in 0..1_000 {
                if ready() {
                    return Ok(());
                }
                std::thread::yield_now();
            }
            self.check_alive(&mut since)?;
        }
    }

    /// Calls `run` with this member's end of the DPDK link; returns `Ok(())` without a call if it is not open.
    pub(super) fn with_end(
        &self,
        run: impl FnOnce(&mut LinkEnd) -> Result<(), Halt>,
    ) -> Result<(), Halt> {
        self.end.borrow_mut().as_mut().map_or(Ok(()), run)
    }

    /// Opens this member's end of the DPDK link if it is not open yet. All members do this before they report that they
    /// are ready, because frames to an end that is not open yet are lost.
    fn open_end(&self) -> Result<(), Halt> {
        let mut end = self.end.borrow_mut();
        if end.is_none() {
            let opened = LinkEnd::open(&self.device).map_err(|why| {
                eprintln!("DPDK: {}: {why}", self.device);
                Halt::Refused(libc::ENODEV)
            })?;
            *end = Some(opened);
        }
        Ok(())
    }

    /// Sleeps on a line until its sleep word has reached `value`.
    pub(super) fn sleep_until(&self, line: &CacheLine, value: u64) -> Result<(), Halt> {
        let mut since = None;
        loop {
            let seen = line.sleep.load(Acquire);
            // No measurement has 2^32 hops, so the word never wraps.
            if u64::from(seen) >= value {
                return Ok(());
            }
            futex_wait(&line.sleep, seen);
            if line.sleep.load(Acquire) == seen {
                self.check_alive(&mut since)?;
            }
        }
    }

    fn check_alive(&self, since: &mut Option<Instant>) -> Result<(), Halt> {
        match self.arena.lines()[FAILURE].seq.load(Acquire) {
            0 => {}
            errno => return Err(Halt::Refused(i32::try_from(errno).unwrap_or(libc::EIO))),
        }
        if since.get_or_insert_with(Instant::now).elapsed() > STUCK_AFTER {
            return Err(Halt::Stuck);
        }
        Ok(())
    }

    /// Publishes to all members why this member stopped; [`Halt::Stuck`] as `ETIMEDOUT`.
    fn fail(&self, halt: Halt) {
        let errno = match halt {
            Halt::Refused(errno) => errno,
            Halt::Stuck => libc::ETIMEDOUT,
        };
        // Only the first failure is stored: it is the cause of those that follow in other members.
        let failure = &self.arena.lines()[FAILURE].seq;
        let _earlier =
            failure.compare_exchange(0, u64::from(errno.unsigned_abs()), AcqRel, Acquire);
    }

    /// Publishes this process's id and the address of its buffers.
    fn publish(&self) {
        let me = self.line_of(self.index);
        me.words[1].store(u64::from(std::process::id()), Relaxed);
        me.words[2].store(self.buffers.borrow().as_ptr().addr() as u64, Relaxed);
    }

    /// Makes what the task needs: a link, or private buffers. Member 0 fills buffer i with the byte i + 1, the others
    /// with zeros.
    fn prepare(&self, job: &LimitBatch) -> Result<(), Halt> {
        if job.task.uses_link() {
            self.open_end()?;
        }
        if !job.task.copies() {
            return Ok(());
        }
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() != job.size * BUFFERS {
            self.make_buffers(job, &mut buffers);
        }
        if self.index != 0 {
            job.clear(&mut buffers);
        }
        Ok(())
    }

    fn make_buffers(&self, job: &LimitBatch, buffers: &mut Vec<u8>) {
        buffers.resize(job.size * BUFFERS, 0);
        for (index, buffer) in buffers.chunks_exact_mut(job.size).enumerate() {
            buffer.fill(if self.index == 0 {
                u8::try_from(index + 1).unwrap_or(0)
            } else {
                0
            });
            if job.task == LimitTask::Both || job.task == LimitTask::Memcpy && self.index == 0 {
                // Writing here keeps page faults out of the measured time.
                self.arena.write_bulk(index * job.size, buffer);
            }
        }
    }

    /// The main loop of a child: runs one command after the other until the quit command.
    fn serve(&self) -> Result<(), Halt> {
        let command = &self.arena.lines()[COMMAND];
        for round in 1_u64.. {
            sleep_until_posted(self, command, round)?;
            let Some(job) = LimitBatch::read(command) else {
                return Ok(());
            };
            self.prepare(&job)?;
            self.publish();
            self.line_of(self.index).seq.store(round, Release);
            job.run(self)?;
            self.line_of(self.index).words[0].store(round, Release);
        }
        Ok(())
    }
}

/// Sleeps until round `round` is posted, without a time limit: member 0 may pause between rounds.
fn sleep_until_posted(member: &Member, command: &CacheLine, round: u64) -> Result<(), Halt> {
    while command.seq.load(Acquire) < round {
        let seen = command.sleep.load(Acquire);
        if command.seq.load(Acquire) < round {
            futex_wait(&command.sleep, seen);
        }
        if member.arena.lines()[FAILURE].seq.load(Acquire) != 0 {
            return Err(Halt::Stuck);
        }
    }
    Ok(())
}

/// The team as member 0 sees it.
#[derive(Debug)]
pub(super) struct Team {
    me: Member,
    children: Vec<Child>,
    round: u64,
    messages: u64,
    pauses: bool,
    mask_before: Option<CpuSet>,
}

impl Team {
    /// Starts one child per further CPU in `cpus`; the first CPU is this process's. `program` is a binary whose `main`
    /// hands the command line to [`serve_if_requested`].
    pub(super) fn start(program: &Path, cpus: &[usize]) -> Result<Self, Error> {
        Self::start_with(program, cpus, &[])
    }

    /// As [`Team::start`], but each member has one of `devices` (DPDK).
    pub(super) fn start_with(
        program: &Path,
        cpus: &[usize],
        devices: &[String],
    ) -> Result<Self, Error> {
        let device_of = |index: usize| devices.get(index).map_or("", String::as_str);
        assert!(cpus.len() <= MOST_MEMBERS, "at most {MOST_MEMBERS} members");
        let arena = Arena::create(LINES, BUFFERS * LARGEST)
            .map_err(|e| Error::io("cannot make shared memory", e))?;
        let mut team = Self {
            me: Member::new(arena, 0, cpus.len(), device_of(0)),
            children: Vec::new(),
            round: 0,
            messages: 0,
            pauses: false,
            mask_before: None,
        };
        for (index, &cpu) in cpus.iter().enumerate().skip(1) {
            let child = Command::new(program)
                .arg(PEER_WORD)
                .arg(team.me.arena.path())
                .args([index, cpus.len(), cpu].map(|number| number.to_string()))
                .arg(device_of(index))
                .stdin(Stdio::null())
                .spawn()
                .map_err(|e| Error::io("cannot start a measuring process", e))?;
            team.children.push(child);
        }
        team.mask_before = sched_getaffinity(Pid::this()).ok();
        pin(cpus[0]);
        allow_tracing();
        Ok(team)
    }

    /// Measures seconds per message of a task, for about `budget`. If [`LimitTask::spins`], the task is measured with
    /// and without a pause instruction between polls, and the better result counts, because it depends on the processor
    /// which of the two is faster.
    pub(super) fn measure(
        &mut self,
        task: LimitTask,
        size: usize,
        budget: Duration,
    ) -> Result<Summary, Error> {
        if !task.spins() {
            return self.measure_batches(task, size, budget);
        }
        self.pauses = false;
        let without_pause = self.measure_batches(task, size, budget / 2)?;
        self.pauses = true;
        let with_pause = self.measure_batches(task, size, budget / 2)?;
        Ok(if with_pause.median < without_pause.median {
            with_pause
        } else {
            without_pause
        })
    }

    fn measure_batches(
        &mut self,
        task: LimitTask,
        size: usize,
        budget: Duration,
    ) -> Result<Summary, Error> {
        let mut count = task.least_count(self.me.members);
        let mut spent = self.batch(task, size, count)?;
        let mut warm = 1;
        while spent < BATCH || warm < 10 {
            if spent < BATCH {
                count *= 2;
            }
            spent = self.batch(task, size, count)?;
            warm += 1;
        }
        let batches = (budget.as_secs_f64() / spent.as_secs_f64()).clamp(5.0, 2000.0);
        let mut samples = Vec::new();
        while (samples.len() as f64) < batches {
            samples.push(self.batch(task, size, count)?.as_secs_f64() / count as f64);
        }
        Summary::of(&samples).ok_or_else(|| Error::Limit("nothing was measured".to_owned()))
    }

    /// Runs one batch of `count` messages, and returns the time that member 0 measured, or the time that the task
    /// itself measured ([`LimitBatch::measured_time`]).
    fn batch(&mut self, task: LimitTask, size: usize, count: u64) -> Result<Duration, Error> {
        let job = LimitBatch {
            task,
            size,
            count,
            before: self.messages,
            pauses: self.pauses,
        };
        self.round += 1;
        self.messages += count;
        self.me.prepare(&job)?;
        self.me.publish();
        job.post(&self.me.arena.lines()[COMMAND], self.round);
        for member in 1..self.me.members {
            self.me
                .yield_until(|| self.me.line_of(member).seq.load(Acquire) == self.round)?;
        }
        let start = Instant::now();
        let outcome = job.run(&self.me);
        let spent = start.elapsed();
        if let Err(halt) = outcome {
            self.me.fail(halt);
            return Err(halt.into());
        }
        for member in 1..self.me.members {
            self.me
                .yield_until(|| self.me.line_of(member).words[0].load(Acquire) == self.round)?;
        }
        Ok(job.measured_time(&self.me).unwrap_or(spent))
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        LimitBatch::post_quit(&self.me.arena.lines()[COMMAND], self.round + 1);
        for child in &mut self.children {
            let since = Instant::now();
            while since.elapsed() < Duration::from_secs(2) && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Usually the child has ended by now; both calls then do nothing.
            drop(child.kill());
            drop(child.wait());
        }
        if let Some(mask) = self.mask_before {
            // This restores the mask that the process had before; it fails only if the administrator has removed CPUs
            // meanwhile.
            let _restored = sched_setaffinity(Pid::this(), &mask);
        }
    }
}

/// The first argument of a team's child.
const PEER_WORD: &str = "limits-peer";

/// Runs as a child of a team if the arguments are those of one, and returns `true` at its end; otherwise returns
/// `false`.
pub(super) fn serve_if_requested(arguments: &[String]) -> bool {
    let [_, word, path, index, members, cpu, device] = arguments else {
        return false;
    };
    if word != PEER_WORD {
        return false;
    }
    let numbers = [index, members, cpu].map(|text| text.parse::<usize>());
    let [Ok(index), Ok(members), Ok(cpu)] = numbers else {
        return false;
    };
    let _set = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    pin(cpu);
    allow_tracing();
    let Ok(arena) = Arena::open(Path::new(path), LINES) else {
        return true;
    };
    let member = Member::new(arena, index, members, device);
    if let Err(halt) = member.serve() {
        member.fail(halt);
    }
    true
}

/// Binds this process to one CPU. Failure is not an error: the figures are then only noisier.
fn pin(cpu: usize) {
    let _bound = core_affinity::set_for_current(CoreId { id: cpu });
}

/// Posts a round, and wakes all members that sleep on the futex word of `command`.
pub(super) fn post_round(command: &CacheLine, round: u64) {
    command.seq.store(round, Release);
    command.sleep.fetch_add(1, Release);
    futex_wake(&command.sleep, i32::MAX);
}
