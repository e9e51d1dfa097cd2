// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions and handles of performance variables. Making or freeing a session or a handle takes a lock and may allocate
//! memory. All other operations use only atomic instructions, so signal handlers may call them.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use queue_layout::{CommRow, EngineCounters, WatermarkObserver};

use super::pvar_handle::PvarHandle;
use super::pvars::{self, PVARS, PerformanceVariable, PvarSource};
use super::traffic::{PeerTraffic, traffic};

/// Why an operation on a performance variable was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PvarRefusal {
    /// The session does not exist, or was freed.
    Session,
    /// The handle does not exist, was freed or is of another session; or its communicator was freed.
    Handle,
    /// No variable has this index.
    Index,
    /// A parameter is invalid.
    Invalid,
    /// The handle always runs, so it cannot be started or stopped.
    StartStop,
    /// The variable is read-only.
    Write,
    /// The variable cannot be read and reset atomically.
    Atomic,
    /// There are too many handles.
    Handles,
    /// There are too many sessions.
    Sessions,
}

/// A session or a handle: the index of its entry, and its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionKey {
    /// Index of the entry.
    pub index: usize,
    /// Number of uses of the entry, modulo 256.
    pub generation: u8,
}

/// The object that a handle is bound to.
#[derive(Clone, Copy, Debug)]
pub enum PvarBinding {
    /// No object: the variable is one of the process.
    Nothing,
    /// A communicator. If the variable is the length of a queue, also the observer of the communicator's queue.
    Comm(&'static CommRow, Option<usize>),
}

/// All sessions and handles of the process.
static TOOL_SESSIONS: OnceLock<ToolSessions> = OnceLock::new();

/// Returns the sessions. The first call allocates all memory that is needed in signal handlers.
pub fn open() -> &'static ToolSessions {
    TOOL_SESSIONS.get_or_init(|| ToolSessions::new(Arc::clone(pvars::engine_counters())))
}

/// The sessions; `None` before [`open`] was called.
#[must_use]
pub fn get() -> Option<&'static ToolSessions> {
    TOOL_SESSIONS.get()
}

/// The sessions of MPI_T, their handles of performance variables, and the communicators that the handles are bound to.
#[derive(Debug)]
pub struct ToolSessions {
    counters: Arc<EngineCounters>,
    /// For each session's entry, twice the generation, plus 1 while the entry is in use.
    sessions: Vec<AtomicU32>,
    /// Chunks of handles, each larger than the chunk before. Chunks are not moved or freed.
    pvar_handles: [OnceLock<Box<[PvarHandle]>>; CHUNKS],
    /// The rows of the communicators to which handles were bound. There are few, because communicators reuse rows.
    rows: Vec<OnceLock<&'static CommRow>>,
    making: Mutex<Making>,
}

/// The allocation of handles; `free`: the indices of handles that were freed.
#[derive(Debug, Default)]
struct Making {
    /// Number of handles allocated.
    made: usize,
    free: Vec<usize>,
}

const SESSIONS: usize = 1024;
const CHUNKS: usize = 12;
const FIRST_HANDLES: usize = 128;
const ROWS: usize = 1024;

/// The chunk of a handle, and the handle's index in the chunk.
fn place(index: usize) -> (usize, usize) {
    let chunk = ((index + FIRST_HANDLES) / FIRST_HANDLES).ilog2() as usize;
    (chunk, index + FIRST_HANDLES - (FIRST_HANDLES << chunk))
}

impl ToolSessions {
    fn new(counters: Arc<EngineCounters>) -> Self {
        Self {
            counters,
            sessions: (0..SESSIONS).map(|_| AtomicU32::new(0)).collect(),
            pvar_handles: [const { OnceLock::new() }; CHUNKS],
            rows: (0..ROWS).map(|_| OnceLock::new()).collect(),
            making: Mutex::default(),
        }
    }

    fn making(&self) -> MutexGuard<'_, Making> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a session.
    ///
    /// # Errors
    /// When there are too many sessions.
    pub fn create_session(&self) -> Result<SessionKey, PvarRefusal> {
        let _one = self.making();
        let is_free = |session: &AtomicU32| session.load(Relaxed) & 1 == 0;
        let index = self.sessions.iter().position(is_free);
        let index = index.ok_or(PvarRefusal::Sessions)?;
        let life = self.sessions[index].fetch_or(1, Relaxed);
        Ok(SessionKey {
            index,
            generation: generation(life),
        })
    }

    /// Frees a session and its handles.
    ///
    /// # Errors
    /// When there is no such session.
    pub fn free_session(&self, session: SessionKey) -> Result<(), PvarRefusal> {
        let number = self.session(session)?;
        let mut making = self.making();
        let of_session = self
            .all()
            .filter(|(_, pvar_handle)| pvar_handle.is_of(number));
        for (index, pvar_handle) in of_session {
            self.close(&mut making, index, pvar_handle);
        }
        self.sessions[session.index].fetch_add(1, Relaxed);
        Ok(())
    }

    /// Frees all sessions and handles.
    pub fn clear(&self) {
        for (index, life) in self.sessions.iter().enumerate() {
            let life = life.load(Relaxed);
            let generation = generation(life);
            if life & 1 != 0 {
                // If the session was freed since it was found here, the call fails, and nothing is left to do.
                let _ = self.free_session(SessionKey { index, generation });
            }
        }
    }

    /// The number that identifies one use of a session's entry; handles store it.
    fn session(&self, key: SessionKey) -> Result<u32, PvarRefusal> {
        let life = self.sessions.get(key.index).ok_or(PvarRefusal::Session)?;
        let life = life.load(Relaxed);
        if life & 1 == 0 || generation(life) != key.generation {
            return Err(PvarRefusal::Session);
        }
        let place = u32::try_from(key.index).map_err(|_| PvarRefusal::Session)?;
        Ok(place << 8 | u32::from(key.generation))
    }

    /// Makes a handle of the variable at index `at` of [`PVARS`]. The handle of a continuous variable always runs.
    ///
    /// # Errors
    /// When the session or the variable does not exist, `bound` is not the object that the variable needs, or there are
    /// too many handles.
    pub fn alloc(
        &self,
        session: SessionKey,
        at: usize,
        bound: PvarBinding,
    ) -> Result<SessionKey, PvarRefusal> {
        let session = self.session(session)?;
        let pvar = PVARS.get(at).ok_or(PvarRefusal::Index)?;
        let count = pvar.count();
        let mut making = self.making();
        let index = match making.free.pop() {
            Some(index) => index,
            None => self.grow(&mut making)?,
        };
        let pvar_handle = self.pvar_handle(index).ok_or(PvarRefusal::Handles)?;
        match self.object(pvar, bound) {
            Ok(object) => Ok(SessionKey {
                index,
                generation: pvar_handle.open(at, count, session, object),
            }),
            Err(refusal) => {
                making.free.push(index);
                Err(refusal)
            }
        }
    }

    fn grow(&self, making: &mut Making) -> Result<usize, PvarRefusal> {
        let index = making.made;
        let (chunk, _) = place(index);
        let chunk_of = self.pvar_handles.get(chunk).ok_or(PvarRefusal::Handles)?;
        chunk_of.get_or_init(|| {
            (0..FIRST_HANDLES << chunk)
                .map(|_| PvarHandle::default())
                .collect()
        });
        making.made += 1;
        Ok(index)
    }

    /// The object of a handle as one number. For a communicator, it consists of the index of the communicator's row,
    /// the use number of that row, and the observer of the communicator's queue. For a watermark of the process, it is
    /// an observer; for other variables of the process, 0.
    fn object(&self, pvar: &PerformanceVariable, bound: PvarBinding) -> Result<u64, PvarRefusal> {
        pvars::is_read(pvar);
        match (pvar.source, bound) {
            (PvarSource::Process(_) | PvarSource::Ranks(_), _) => Ok(0),
            (PvarSource::Extreme(level), _) => {
                let is_lowest = pvar.class == pvars::PvarClass::LowWatermark;
                let watch = level(&self.counters).watch(is_lowest);
                watch
                    .map(|watch| watch.0 as u64)
                    .ok_or(PvarRefusal::Handles)
            }
            (PvarSource::Comm(..), PvarBinding::Comm(row, _)) => Ok(self.row_object(row)?),
            (PvarSource::Queue(_), PvarBinding::Comm(row, Some(watch))) => {
                Ok(self.row_object(row)? | (watch as u64) << WATCH_SHIFT)
            }
            _ => Err(PvarRefusal::Invalid),
        }
    }

    fn row_object(&self, row: &'static CommRow) -> Result<u64, PvarRefusal> {
        let is_it =
            |known: &OnceLock<&'static CommRow>| core::ptr::eq(*known.get_or_init(|| row), row);
        let at = self
            .rows
            .iter()
            .position(is_it)
            .ok_or(PvarRefusal::Handles)?;
        Ok(u64::from(row.use_number()) | (at as u64) << ROW_SHIFT)
    }

    /// Frees a handle.
    ///
    /// # Errors
    /// When there is no such session or handle.
    pub fn free(&self, session: SessionKey, handle: SessionKey) -> Result<(), PvarRefusal> {
        let mut making = self.making();
        let pvar_handle = self.find(session, handle)?;
        self.close(&mut making, handle.index, pvar_handle);
        Ok(())
    }

    fn close(&self, making: &mut Making, index: usize, pvar_handle: &PvarHandle) {
        match PVARS.get(pvar_handle.pvar()).map(|pvar| pvar.source) {
            Some(PvarSource::Extreme(level)) => {
                level(&self.counters).unwatch(watch_of(pvar_handle))
            }
            Some(PvarSource::Queue(kind)) => {
                self.counters.queues(kind).unwatch(queue_of(pvar_handle))
            }
            _ => {}
        }
        pvar_handle.close();
        making.free.push(index);
    }

    fn pvar_handle(&self, index: usize) -> Option<&PvarHandle> {
        let (chunk, at) = place(index);
        self.pvar_handles.get(chunk)?.get()?.get(at)
    }

    fn all(&self) -> impl Iterator<Item = (usize, &PvarHandle)> {
        let chunks = self.pvar_handles.iter().filter_map(OnceLock::get);
        chunks.flat_map(|chunk| chunk.iter()).enumerate()
    }

    fn find(&self, session: SessionKey, handle: SessionKey) -> Result<&PvarHandle, PvarRefusal> {
        let number = self.session(session)?;
        let pvar_handle = self.pvar_handle(handle.index).ok_or(PvarRefusal::Handle)?;
        let is_it = pvar_handle.is_open(handle.generation, number);
        is_it.then_some(pvar_handle).ok_or(PvarRefusal::Handle)
    }

    /// The variable of a handle, and the present value of the source of its value number `at`.
    fn now(
        &self,
        pvar_handle: &PvarHandle,
        at: usize,
    ) -> Result<(&'static PerformanceVariable, u64), PvarRefusal> {
        let pvar = PVARS.get(pvar_handle.pvar()).ok_or(PvarRefusal::Handle)?;
        let now = match pvar.source {
            PvarSource::Process(read) => read(&self.counters),
            PvarSource::Extreme(level) => level(&self.counters).extreme(watch_of(pvar_handle)),
            PvarSource::Comm(read, what) => read(self.row(pvar_handle)?, what),
            PvarSource::Queue(kind) => {
                self.row(pvar_handle)?;
                self.counters.queues(kind).length(queue_of(pvar_handle))
            }
            PvarSource::Ranks(read) => {
                let now = |traffic: &Arc<PeerTraffic>| read(traffic, at);
                traffic().map_or(0, now)
            }
        };
        Ok((pvar, now))
    }

    /// The row of the communicator that a handle is bound to; an error if that communicator was freed.
    fn row(&self, pvar_handle: &PvarHandle) -> Result<&'static CommRow, PvarRefusal> {
        let object = pvar_handle.object();
        let at = object >> ROW_SHIFT & ROW_MASK;
        let row = self.rows.get(usize::try_from(at).unwrap_or(ROWS));
        let row = row.and_then(OnceLock::get).ok_or(PvarRefusal::Handle)?;
        #[allow(clippy::cast_possible_truncation, reason = "the low half")]
        let is_it = row.is_in_use(object as u32);
        is_it.then_some(*row).ok_or(PvarRefusal::Handle)
    }

    /// Starts a handle; `None`: all handles of the session that can be started.
    ///
    /// # Errors
    /// When there is no such session or handle, or the handle always runs.
    pub fn start(
        &self,
        session: SessionKey,
        handle: Option<SessionKey>,
    ) -> Result<(), PvarRefusal> {
        self.each(session, handle, |pvar_handle, pvar| {
            if pvar.is_continuous() {
                return Err(PvarRefusal::StartStop);
            }
            if !pvar_handle.is_running() {
                pvar_handle.start(|at| self.shows(pvar_handle, at));
            }
            Ok(())
        })
    }

    /// Stops a handle; `None`: all handles of the session that can be stopped.
    ///
    /// # Errors
    /// When there is no such session or handle, or the handle always runs.
    pub fn stop(&self, session: SessionKey, handle: Option<SessionKey>) -> Result<(), PvarRefusal> {
        self.each(session, handle, |pvar_handle, pvar| {
            if pvar.is_continuous() {
                return Err(PvarRefusal::StartStop);
            }
            if pvar_handle.is_running() {
                pvar_handle.stop(pvar, |at| self.shows(pvar_handle, at));
            }
            Ok(())
        })
    }

    /// Resets a handle to its starting value; `None`: all handles of the session that can be reset.
    ///
    /// # Errors
    /// When there is no such session or handle, or its variable is read-only.
    pub fn reset(
        &self,
        session: SessionKey,
        handle: Option<SessionKey>,
    ) -> Result<(), PvarRefusal> {
        self.each(session, handle, |pvar_handle, pvar| {
            for at in 0..pvar_handle.count() {
                self.exchange(pvar_handle, pvar, at, self.shows(pvar_handle, at), None)?;
            }
            Ok(())
        })
    }

    /// Applies `act` to a handle. `None`: to all handles of the session; a handle for which `act` fails is skipped.
    fn each(
        &self,
        session: SessionKey,
        handle: Option<SessionKey>,
        act: impl Fn(&PvarHandle, &PerformanceVariable) -> Result<(), PvarRefusal>,
    ) -> Result<(), PvarRefusal> {
        if let Some(handle) = handle {
            let pvar_handle = self.find(session, handle)?;
            let (pvar, _) = self.now(pvar_handle, 0)?;
            return act(pvar_handle, pvar);
        }
        let number = self.session(session)?;
        let of_session = self
            .all()
            .filter(|(_, pvar_handle)| pvar_handle.is_of(number));
        for (_, pvar_handle) in of_session {
            if let Ok((pvar, _)) = self.now(pvar_handle, 0) {
                let _ = act(pvar_handle, pvar);
            }
        }
        Ok(())
    }

    /// The present value of the source of value number `at` of a handle that was just validated.
    fn shows(&self, pvar_handle: &PvarHandle, at: usize) -> u64 {
        self.now(pvar_handle, at).map_or(0, |(_, now)| now)
    }

    /// Number of values of a handle.
    ///
    /// # Errors
    /// When there is no such session or handle.
    pub fn count(&self, session: SessionKey, handle: SessionKey) -> Result<usize, PvarRefusal> {
        Ok(self.find(session, handle)?.count())
    }

    /// The variable of a handle, and its value number `at`.
    ///
    /// # Errors
    /// When there is no such session or handle.
    pub fn read(
        &self,
        session: SessionKey,
        handle: SessionKey,
        at: usize,
    ) -> Result<(&'static PerformanceVariable, u64), PvarRefusal> {
        let pvar_handle = self.find(session, handle)?;
        let (pvar, now) = self.now(pvar_handle, at)?;
        Ok((pvar, pvar_handle.value(pvar, at, now)))
    }

    /// The variable of a handle.
    ///
    /// # Errors
    /// When there is no such session or handle.
    pub fn pvar(
        &self,
        session: SessionKey,
        handle: SessionKey,
    ) -> Result<&'static PerformanceVariable, PvarRefusal> {
        let pvar_handle = self.find(session, handle)?;
        PVARS.get(pvar_handle.pvar()).ok_or(PvarRefusal::Handle)
    }

    /// Sets value number `at` of a handle.
    ///
    /// # Errors
    /// When there is no such session or handle, or its variable is read-only.
    pub fn write(
        &self,
        session: SessionKey,
        handle: SessionKey,
        at: usize,
        value: u64,
    ) -> Result<(), PvarRefusal> {
        let pvar_handle = self.find(session, handle)?;
        let (pvar, now) = self.now(pvar_handle, at)?;
        self.exchange(pvar_handle, pvar, at, now, Some(value))
            .map(|_| ())
    }

    /// Reads value number `at` of a handle and resets it atomically.
    ///
    /// # Errors
    /// When there is no such session or handle, or its variable is read-only.
    pub fn read_reset(
        &self,
        session: SessionKey,
        handle: SessionKey,
        at: usize,
    ) -> Result<(&'static PerformanceVariable, u64), PvarRefusal> {
        let pvar_handle = self.find(session, handle)?;
        let (pvar, now) = self.now(pvar_handle, at)?;
        if pvar.is_read_only() {
            return Err(PvarRefusal::Atomic);
        }
        let value = self.exchange(pvar_handle, pvar, at, now, None)?;
        Ok((pvar, value))
    }

    /// Sets value number `at` of a handle to `value`; `None`: to its starting value. Returns the previous value.
    fn exchange(
        &self,
        pvar_handle: &PvarHandle,
        pvar: &PerformanceVariable,
        at: usize,
        now: u64,
        value: Option<u64>,
    ) -> Result<u64, PvarRefusal> {
        match pvar.source {
            _ if pvar.is_read_only() => Err(PvarRefusal::Write),
            PvarSource::Extreme(level) => {
                let level = level(&self.counters);
                let value = value.unwrap_or_else(|| level.get());
                Ok(level.set_extreme(watch_of(pvar_handle), value))
            }
            _ => Ok(pvar_handle.exchange(at, now, value.unwrap_or(0))),
        }
    }
}

fn watch_of(pvar_handle: &PvarHandle) -> WatermarkObserver {
    WatermarkObserver(usize::try_from(pvar_handle.object()).unwrap_or(usize::MAX))
}

fn queue_of(pvar_handle: &PvarHandle) -> usize {
    usize::try_from(pvar_handle.object() >> WATCH_SHIFT).unwrap_or(usize::MAX)
}

#[allow(clippy::cast_possible_truncation, reason = "eight bits are kept")]
fn generation(life: u32) -> u8 {
    (life >> 1) as u8
}

/// The parts of a handle's object, from the lowest bit up: the use number of a row in 32 bits, the index of the row in
/// 16 bits, and an observer.
const ROW_SHIFT: u32 = 32;
const ROW_MASK: u64 = 0xffff;
const WATCH_SHIFT: u32 = 48;

#[cfg(test)]
mod tests {
    use super::*;
    use queue_layout::{CommFacts, Queued};

    fn find(name: &str) -> usize {
        let found = PVARS.iter().position(|pvar| pvar.name == name);
        found.unwrap()
    }

    fn sessions() -> ToolSessions {
        ToolSessions::new(Arc::default())
    }

    fn value(sessions: &ToolSessions, session: SessionKey, handle: SessionKey) -> u64 {
        sessions.read(session, handle, 0).unwrap().1
    }

    #[test]
    fn handle_places_fill_chunk_after_chunk() {
        assert_eq!((place(0), place(127)), ((0, 0), (0, 127)));
        assert_eq!((place(128), place(383)), ((1, 0), (1, 255)));
        assert_eq!(place(384), (2, 0));
    }

    #[test]
    fn pvar_sessions_are_independent() {
        let sessions = sessions();
        let (one, two) = (
            sessions.create_session().unwrap(),
            sessions.create_session().unwrap(),
        );
        let at = find("unexpected_messages");
        let first = sessions.alloc(one, at, PvarBinding::Nothing).unwrap();
        let second = sessions.alloc(two, at, PvarBinding::Nothing).unwrap();
        sessions.counters.unexpected.add(5);
        sessions.start(one, Some(first)).unwrap();
        sessions.counters.unexpected.add(2);
        sessions.start(two, None).unwrap();
        sessions.counters.unexpected.add(1);
        assert_eq!(
            (value(&sessions, one, first), value(&sessions, two, second)),
            (3, 1)
        );
        sessions.stop(two, Some(second)).unwrap();
        sessions.reset(one, None).unwrap();
        sessions.counters.unexpected.add(9);
        assert_eq!(
            (value(&sessions, one, first), value(&sessions, two, second)),
            (9, 1)
        );
        assert_eq!(
            sessions.read(one, second, 0).unwrap_err(),
            PvarRefusal::Handle
        );
        assert_eq!(sessions.read_reset(one, first, 0).unwrap().1, 9);
        sessions.write(one, first, 0, 40).unwrap();
        sessions.counters.unexpected.add(2);
        assert_eq!(value(&sessions, one, first), 42);
    }

    #[test]
    fn freed_sessions_and_handles_are_invalid() {
        let sessions = sessions();
        let session = sessions.create_session().unwrap();
        let at = find("communicators");
        let first = sessions.alloc(session, at, PvarBinding::Nothing).unwrap();
        sessions.free(session, first).unwrap();
        assert_eq!(sessions.free(session, first), Err(PvarRefusal::Handle));
        let second = sessions.alloc(session, at, PvarBinding::Nothing).unwrap();
        assert!(second.index == first.index && second != first);
        assert_eq!(
            sessions.read(session, first, 0).unwrap_err(),
            PvarRefusal::Handle
        );
        sessions.free_session(session).unwrap();
        assert_eq!(
            sessions.read(session, second, 0).unwrap_err(),
            PvarRefusal::Session
        );
        let again = sessions.create_session().unwrap();
        assert!(again.index == session.index && again != session);
        assert_eq!(
            sessions.read(again, second, 0).unwrap_err(),
            PvarRefusal::Handle
        );
        sessions.clear();
        assert_eq!(sessions.free_session(again), Err(PvarRefusal::Session));
    }

    #[test]
    fn continuous_pvars_do_not_start_and_read_only_pvars_are_not_set() {
        let sessions = sessions();
        let session = sessions.create_session().unwrap();
        let level = sessions
            .alloc(session, find("communicators"), PvarBinding::Nothing)
            .unwrap();
        assert_eq!(
            sessions.start(session, Some(level)),
            Err(PvarRefusal::StartStop)
        );
        assert_eq!(
            sessions.stop(session, Some(level)),
            Err(PvarRefusal::StartStop)
        );
        assert_eq!(
            sessions.reset(session, Some(level)),
            Err(PvarRefusal::Write)
        );
        assert_eq!(
            sessions.write(session, level, 0, 1),
            Err(PvarRefusal::Write)
        );
        assert_eq!(
            sessions.read_reset(session, level, 0).unwrap_err(),
            PvarRefusal::Atomic
        );
        for all in [
            sessions.start(session, None),
            sessions.stop(session, None),
            sessions.reset(session, None),
        ] {
            assert_eq!(all, Ok(()));
        }
    }

    #[test]
    fn a_watermark_begins_when_its_handle_does() {
        let sessions = sessions();
        let session = sessions.create_session().unwrap();
        let level = |more: u64, less: u64| {
            sessions.counters.kept_bytes.add(more);
            sessions.counters.kept_bytes.sub(less);
        };
        let (high, low) = (
            "unexpected_recvq_buffer_size_high",
            "unexpected_recvq_buffer_size_low",
        );
        level(10, 0);
        let first = sessions
            .alloc(session, find(high), PvarBinding::Nothing)
            .unwrap();
        level(10, 15);
        let second = sessions
            .alloc(session, find(high), PvarBinding::Nothing)
            .unwrap();
        let lowest = sessions
            .alloc(session, find(low), PvarBinding::Nothing)
            .unwrap();
        level(2, 6);
        let values = [first, second, lowest].map(|handle| value(&sessions, session, handle));
        assert_eq!(values, [20, 7, 1]);
        assert_eq!(sessions.read_reset(session, first, 0).unwrap().1, 20);
        assert_eq!(value(&sessions, session, first), 1);
        sessions.free_session(session).unwrap();
        let session = sessions.create_session().unwrap();
        for _ in 0..queue_layout::WATCHES {
            sessions
                .alloc(session, find(high), PvarBinding::Nothing)
                .unwrap();
        }
        let refused = sessions.alloc(session, find(high), PvarBinding::Nothing);
        assert_eq!(refused, Err(PvarRefusal::Handles));
    }

    #[test]
    fn a_pvar_of_a_communicator_becomes_invalid_with_it() {
        let sessions = sessions();
        let session = sessions.create_session().unwrap();
        let row: &'static CommRow = Box::leak(Box::default());
        let facts = CommFacts {
            context: 4,
            rank: 2,
            group: (5, 0),
            remote: None,
        };
        row.open(&facts);
        let at = find("collective_bcast_calls");
        let refused = sessions.alloc(session, at, PvarBinding::Nothing);
        assert_eq!(refused, Err(PvarRefusal::Invalid));
        let handle = sessions
            .alloc(session, at, PvarBinding::Comm(row, None))
            .unwrap();
        let size = sessions.alloc(
            session,
            find("communicator_size"),
            PvarBinding::Comm(row, None),
        );
        assert_eq!(value(&sessions, session, size.unwrap()), 5);
        let _ = row.begin(queue_layout::collective("Bcast"));
        sessions.start(session, Some(handle)).unwrap();
        let _ = row.begin(queue_layout::collective("Bcast"));
        assert_eq!(value(&sessions, session, handle), 1);
        let queue = find("MPI_T_UMQ_LENGTH");
        let watch = sessions.counters.queues(Queued::Unexpected).watch(4, 3);
        let length = sessions
            .alloc(session, queue, PvarBinding::Comm(row, watch))
            .unwrap();
        sessions.start(session, Some(length)).unwrap();
        sessions.counters.queues(Queued::Unexpected).arrived(4);
        assert_eq!(value(&sessions, session, length), 4);
        row.close();
        row.open(&facts);
        assert_eq!(
            sessions.read(session, handle, 0).unwrap_err(),
            PvarRefusal::Handle
        );
        assert_eq!(
            sessions.read(session, length, 0).unwrap_err(),
            PvarRefusal::Handle
        );
        assert_eq!(sessions.free(session, length), Ok(()));
    }
}
