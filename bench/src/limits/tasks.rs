// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tasks of a team: each is a loop over `count` messages that all members run.
//!
//! Two members: 0 sends (or serves first), 1 receives. Flags are counted up and never set back, so a task starts from
//! `before`, the number of messages of all earlier batches.

use nix::libc;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use std::time::{Duration, Instant, SystemTime};

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

use super::frames::MESSAGES;
use super::raw::{CacheLine, futex_wake};
use super::team::{BUFFERS, Halt, Member, ring_the_bell};

/// What is measured. Times are per message, one way, unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitTask {
    /// Ping-pong of one cache line that holds flag and payload.
    Line,
    /// Ping-pong of a block: copied into shared memory, flag set, copied out.
    Block,
    /// A ring of 64 one-line slots, one direction; credits come back every 32 slots.
    Slots,
    /// One process copies from private into shared memory; the others are idle.
    Memcpy,
    /// Both processes copy from private into shared memory at once, every other message each.
    Both,
    /// One message at a time: the receiver reads one half, the sender writes the other.
    Split,
    /// One message at a time: the receiver reads all of it.
    Read,
    /// Ping-pong of a line between two processes on one CPU that yield to each other.
    Yield,
    /// Ping-pong of futex wake-ups, between two processes on one CPU: the waiting one sleeps.
    Futex,
    /// From before the wake-up of a process that has slept for a while until it runs; from clock to clock.
    Wake,
    /// A token round all members by futex wake-ups; a message is one hop.
    Ring,
    /// A barrier of all members on one counter, waiting by yielding; a message is one barrier.
    Barrier,
    /// Ping-pong of a frame of Ethernet, by DPDK.
    FrameTrips,
    /// Windows of frames one way.
    FrameRate,
    /// Messages one way in frames, with checksums.
    FrameStream,
}

impl LimitTask {
    const ALL: [Self; 15] = [
        Self::Line,
        Self::Block,
        Self::Slots,
        Self::Memcpy,
        Self::Both,
        Self::Split,
        Self::Read,
        Self::Yield,
        Self::Futex,
        Self::Wake,
        Self::Ring,
        Self::Barrier,
        Self::FrameTrips,
        Self::FrameRate,
        Self::FrameStream,
    ];

    /// Whether members need private buffers.
    pub(super) const fn copies(self) -> bool {
        matches!(
            self,
            Self::Block | Self::Memcpy | Self::Both | Self::Split | Self::Read
        )
    }

    /// Messages of the shortest batch; a longer one has twice as many, or four times, and so on.
    pub(super) const fn least_count(self, members: usize) -> u64 {
        match self {
            Self::FrameRate => MESSAGES,
            _ => members as u64,
        }
    }

    /// Whether members communicate over a link of DPDK.
    pub(super) const fn uses_link(self) -> bool {
        matches!(self, Self::FrameTrips | Self::FrameRate | Self::FrameStream)
    }

    /// Whether members spin while they wait.
    pub(super) const fn spins(self) -> bool {
        matches!(
            self,
            Self::Line | Self::Block | Self::Slots | Self::Split | Self::Read
        )
    }
}

/// One batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LimitBatch {
    pub(super) task: LimitTask,
    pub(super) size: usize,
    pub(super) count: u64,
    pub(super) before: u64,
    pub(super) polite: bool,
}

impl LimitBatch {
    /// Hands the job to the other members.
    pub(super) fn post(&self, command: &CacheLine, round: u64) {
        let index = LimitTask::ALL
            .iter()
            .position(|task| *task == self.task)
            .unwrap_or(usize::MAX);
        let values = [
            index as u64,
            self.size as u64,
            self.count,
            self.before,
            u64::from(self.polite),
        ];
        for (word, value) in command.words.iter().zip(values) {
            word.store(value, Relaxed);
        }
        ring_the_bell(command, round);
    }

    /// Ends the other members.
    pub(super) fn post_quit(command: &CacheLine, round: u64) {
        command.words[0].store(u64::MAX, Relaxed);
        ring_the_bell(command, round);
    }

    /// Reads what was posted; `None` is the end.
    pub(super) fn read(command: &CacheLine) -> Option<Self> {
        let word = |index: usize| command.words[index].load(Relaxed);
        let task = *LimitTask::ALL.get(usize::try_from(word(0)).ok()?)?;
        let size = usize::try_from(word(1)).ok()?;
        Some(Self {
            task,
            size,
            count: word(2),
            before: word(3),
            polite: word(4) != 0,
        })
    }

    /// Runs this member's part.
    pub(super) fn run(&self, member: &Member) -> Result<(), Halt> {
        member.polite.set(self.polite);
        match self.task {
            LimitTask::Line => self.line(member),
            LimitTask::Block => self.block(member),
            LimitTask::Slots => self.slots(member),
            LimitTask::Memcpy => self.memcpy(member, |_| member.index == 0),
            LimitTask::Both => self.both(member),
            LimitTask::Split | LimitTask::Read => self.direct(member),
            LimitTask::Yield => self.yields(member),
            LimitTask::Futex | LimitTask::Ring => self.ring(member),
            LimitTask::Wake => self.wake(member),
            LimitTask::Barrier => self.barrier(member),
            LimitTask::FrameTrips => {
                let trips = (self.count / 2).max(1);
                member.with_end(|end| end.trips(member, self.size, trips))
            }
            LimitTask::FrameRate => member.with_end(|end| end.rate(member, self.size, self.count)),
            LimitTask::FrameStream => {
                member.with_end(|end| end.stream(member, self.size, self.count))
            }
        }
    }

    fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        self.before + 1..=self.before + self.count
    }

    /// A message is a round trip halved: `count` messages are `count / 2` round trips, at least one.
    fn trips(&self) -> impl Iterator<Item = u64> + use<> {
        self.before + 1..=self.before + (self.count / 2).max(1)
    }

    fn line(&self, member: &Member) -> Result<(), Halt> {
        let (mine, theirs) = ping_lines(member);
        for trip in self.trips() {
            if member.index == 0 {
                send_line(mine, trip);
            }
            member.spin(|| theirs.seq.load(Acquire) == trip)?;
            let payload = theirs.words[0].load(Relaxed);
            if member.index == 1 {
                send_line(mine, payload);
            }
        }
        Ok(())
    }

    fn yields(&self, member: &Member) -> Result<(), Halt> {
        let (mine, theirs) = ping_lines(member);
        for trip in self.trips() {
            if member.index == 0 {
                send_line(mine, trip);
            }
            member.yielding(|| theirs.seq.load(Acquire) == trip)?;
            if member.index == 1 {
                send_line(mine, trip);
            }
        }
        Ok(())
    }

    fn block(&self, member: &Member) -> Result<(), Halt> {
        let (mine, theirs) = ping_lines(member);
        let mut buffers = member.buffers.borrow_mut();
        let (out, rest) = buffers.split_at_mut(self.size);
        let inwards = &mut rest[..self.size];
        let place = |index: usize| index * self.size.next_multiple_of(4096);
        let send = |trip: u64| {
            for (piece, bytes) in out.chunks(PIECE_BYTES).enumerate() {
                let start = place(member.index) + piece * PIECE_BYTES;
                member.arena.write_bulk(start, bytes);
            }
            mine.seq.store(trip, Release);
        };
        for trip in self.trips() {
            if member.index == 0 {
                send(trip);
            }
            member.spin(|| theirs.seq.load(Acquire) == trip)?;
            for (piece, bytes) in inwards.chunks_mut(PIECE_BYTES).enumerate() {
                let start = place(1 - member.index) + piece * PIECE_BYTES;
                member.arena.read_bulk(start, bytes);
            }
            if member.index == 1 {
                send(trip);
            }
        }
        Ok(())
    }

    fn slots(&self, member: &Member) -> Result<(), Halt> {
        let credit = member.work(CREDIT);
        let slot =
            |number: u64| member.work(SLOTS + usize::try_from(number % SLOT_COUNT).unwrap_or(0));
        let last = self.before + self.count;
        let mut freed = self.before;
        for number in self.numbers() {
            if member.index == 1 {
                member.spin(|| slot(number).seq.load(Acquire) == number)?;
                std::hint::black_box(slot(number).words[0].load(Relaxed));
                if number % (SLOT_COUNT / 2) == 0 || number == last {
                    credit.seq.store(number, Release);
                }
                continue;
            }
            if number - freed > SLOT_COUNT {
                member.spin(|| number - credit.seq.load(Acquire).max(self.before) <= SLOT_COUNT)?;
                freed = credit.seq.load(Acquire);
            }
            send_line(slot(number), number);
        }
        if member.index == 0 {
            member.spin(|| credit.seq.load(Acquire) == last)
        } else {
            Ok(())
        }
    }

    /// Copies the messages that are this member's; each has a place of its own.
    fn memcpy(&self, member: &Member, is_mine: impl Fn(u64) -> bool) -> Result<(), Halt> {
        let buffers = member.buffers.borrow();
        for number in self.numbers().filter(|number| is_mine(*number)) {
            let start = rotate(number) * self.size;
            member
                .arena
                .write_bulk(start, &buffers[start..start + self.size]);
        }
        Ok(())
    }

    /// Member 0 is done when both are.
    fn both(&self, member: &Member) -> Result<(), Halt> {
        let done = member.work(DIRECT);
        let last = self.before + self.count;
        self.memcpy(member, |number| number % 2 == member.index as u64)?;
        if member.index == 1 {
            done.seq.store(last, Release);
            return Ok(());
        }
        member.spin(|| done.seq.load(Acquire) == last)
    }

    /// The handshake of one direct copy: offered, granted, (half) written, done; each flag has a line of its own.
    fn direct(&self, member: &Member) -> Result<(), Halt> {
        let [offer, grant, written, done] = [0, 2, 4, 6].map(|index| member.work(DIRECT + index));
        let half = if self.task == LimitTask::Split {
            self.size / 2
        } else {
            self.size
        };
        let them = Remote::of(member, 1 - member.index);
        let mut buffers = member.buffers.borrow_mut();
        for number in self.numbers() {
            let start = rotate(number) * self.size;
            if member.index == 0 {
                offer.seq.store(number, Release);
                member.spin(|| grant.seq.load(Acquire) == number)?;
                them.write(start + half, &buffers[start + half..start + self.size])?;
                written.seq.store(number, Release);
                member.spin(|| done.seq.load(Acquire) == number)?;
            } else {
                member.spin(|| offer.seq.load(Acquire) == number)?;
                grant.seq.store(number, Release);
                them.read(start, &mut buffers[start..start + half])?;
                member.spin(|| written.seq.load(Acquire) == number)?;
                done.seq.store(number, Release);
            }
        }
        if member.index == 1 {
            self.check(&buffers)
        } else {
            Ok(())
        }
    }

    /// Wipes what [`Self::check`] will look at.
    pub(super) fn wipe(&self, buffers: &mut [u8]) {
        for at in self.checked() {
            buffers[at] = 0;
        }
    }

    /// The last buffer must hold what member 0 has in its own: a copy that did not happen must not look fast.
    fn check(&self, buffers: &[u8]) -> Result<(), Halt> {
        let expected = u8::try_from(rotate(self.before + self.count) + 1).unwrap_or(0);
        let arrived = std::hint::black_box(buffers);
        if self.checked().iter().all(|at| arrived[*at] == expected) {
            Ok(())
        } else {
            Err(Halt::WRONG_BYTES)
        }
    }

    /// Both ends of both halves of the batch's last buffer.
    fn checked(&self) -> [usize; 4] {
        let start = rotate(self.before + self.count) * self.size;
        [0, self.size / 2 - 1, self.size / 2, self.size - 1].map(|at| start + at)
    }

    /// Each member sleeps until the one before it wakes it. With two members that is a ping-pong of wake-ups.
    fn ring(&self, member: &Member) -> Result<(), Halt> {
        let mine = member.line_of(member.index);
        let next = member.line_of((member.index + 1) % member.members);
        let rounds = (self.count / member.members as u64).max(1);
        let pass = || {
            next.sleep.fetch_add(1, Release);
            futex_wake(&next.sleep, 1);
        };
        // Each pass adds 1 to the sleeper's word, so the rounds of all batches say what it must reach.
        let mut seen = mine.words[3].load(Relaxed);
        for _ in 0..rounds {
            if member.index == 0 {
                pass();
            }
            seen += 1;
            member.asleep(mine, seen)?;
            if member.index != 0 {
                pass();
            }
        }
        mine.words[3].store(seen, Relaxed);
        Ok(())
    }

    /// Member 0 wakes, member 1 adds up how long each wake-up took and leaves the sum in its line.
    fn wake(&self, member: &Member) -> Result<(), Halt> {
        let (stamp, sleeper) = (member.work(PING), member.line_of(1));
        let mut spent = 0;
        let mut seen = sleeper.words[3].load(Relaxed);
        for number in self.numbers() {
            seen += 1;
            if member.index == 1 {
                member.asleep(sleeper, seen)?;
                spent += nanoseconds().saturating_sub(stamp.words[0].load(Acquire));
                stamp.seq.store(number, Release);
                continue;
            }
            let since = Instant::now();
            member.spin(|| since.elapsed() >= LONG_ENOUGH_TO_SLEEP)?;
            stamp.words[0].store(nanoseconds(), Release);
            sleeper.sleep.fetch_add(1, Release);
            futex_wake(&sleeper.sleep, 1);
            member.spin(|| stamp.seq.load(Acquire) == number)?;
        }
        if member.index == 1 {
            sleeper.words[3].store(seen, Relaxed);
            sleeper.words[4].store(spent, Relaxed);
        }
        Ok(())
    }

    /// What a batch took, where the task measures that itself.
    pub(super) fn own_time(&self, member: &Member) -> Option<Duration> {
        let spent = || Duration::from_nanos(member.line_of(1).words[4].load(Relaxed));
        (self.task == LimitTask::Wake).then(spent)
    }

    fn barrier(&self, member: &Member) -> Result<(), Halt> {
        let (arrived, gone) = (member.work(BARRIER), member.work(BARRIER + 2));
        for number in self.numbers() {
            if arrived.seq.fetch_add(1, AcqRel) + 1 == member.members as u64 {
                arrived.seq.store(0, Relaxed);
                gone.seq.store(number, Release);
            } else {
                member.yielding(|| gone.seq.load(Acquire) >= number)?;
            }
        }
        Ok(())
    }
}

/// The C library copies more than two of these with an instruction that is slow on memory of another core, on some processors.
const PIECE_BYTES: usize = 1024;
/// A process that has waited this long is asleep, and its CPU idle.
const LONG_ENOUGH_TO_SLEEP: Duration = Duration::from_micros(100);

/// A clock that two processes share.
fn nanoseconds() -> u64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(0)
}

/// Work lines: two for ping-pongs, one for credits, the handshake, the barrier, and the ring's slots.
const PING: usize = 0;
const CREDIT: usize = 8;
const DIRECT: usize = 16;
const BARRIER: usize = 32;
const SLOTS: usize = 64;
const SLOT_COUNT: u64 = 64;

/// This member's line and the other's; not neighbours, because processors fetch lines in pairs.
fn ping_lines(member: &Member) -> (&CacheLine, &CacheLine) {
    (
        member.work(PING + 2 * member.index),
        member.work(PING + 2 * (1 - member.index)),
    )
}

fn send_line(line: &CacheLine, number: u64) {
    line.words[0].store(number, Relaxed);
    line.seq.store(number, Release);
}

fn rotate(number: u64) -> usize {
    usize::try_from(number % BUFFERS as u64).unwrap_or(0)
}

/// Another member's private memory.
struct Remote {
    process: Pid,
    base: usize,
}

impl Remote {
    fn of(member: &Member, other: usize) -> Self {
        let line = member.line_of(other);
        let number = |index: usize| line.words[index].load(Acquire);
        Self {
            process: Pid::from_raw(i32::try_from(number(1)).unwrap_or(0)),
            base: usize::try_from(number(2)).unwrap_or(0),
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Halt> {
        let (base, len) = (self.base + offset, into.len());
        let got = process_vm_readv(
            self.process,
            &mut [IoSliceMut::new(into)],
            &[RemoteIoVec { base, len }],
        );
        complete(got, len)
    }

    fn write(&self, offset: usize, from: &[u8]) -> Result<(), Halt> {
        let (base, len) = (self.base + offset, from.len());
        if len == 0 {
            return Ok(());
        }
        let put = process_vm_writev(
            self.process,
            &[IoSlice::new(from)],
            &[RemoteIoVec { base, len }],
        );
        complete(put, len)
    }
}

fn complete(moved: nix::Result<usize>, wanted: usize) -> Result<(), Halt> {
    match moved {
        Ok(count) if count == wanted => Ok(()),
        Ok(_) => Err(Halt::Refused(libc::EIO)),
        Err(errno) => Err(Halt::Refused(errno as i32)),
    }
}
