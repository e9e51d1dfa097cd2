// SPDX-License-Identifier: MIT OR Apache-2.0
//! Status codes, their texts, and the outcome of the last operation.

use core::ffi::{CStr, c_int};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::{Mutex, OnceLock, PoisonError};

/// A status code of QMP, or an error code of MPI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct QmpStatus(pub c_int);

#[allow(missing_docs, reason = "each is explained by its text below")]
impl QmpStatus {
    pub const SUCCESS: Self = Self(0);
    pub const ERROR: Self = Self(0x1001);
    pub const NOT_INITED: Self = Self(0x1002);
    pub const RTENV_ERR: Self = Self(0x1003);
    pub const NOMEM_ERR: Self = Self(0x1006);
    pub const MEMSIZE_ERR: Self = Self(0x1007);
    pub const TOPOLOGY_EXISTS: Self = Self(0x100a);
    pub const NOTSUPPORTED: Self = Self(0x100c);
    pub const BAD_MESSAGE: Self = Self(0x100e);
    pub const INVALID_ARG: Self = Self(0x100f);
    pub const INVALID_TOPOLOGY: Self = Self(0x1010);
    pub const NONEIGHBOR_INFO: Self = Self(0x1011);
    pub const MEMSIZE_TOOBIG: Self = Self(0x1012);
    pub const BAD_MEMORY: Self = Self(0x1013);
    pub const NODE_OUTRANGE: Self = Self(0x1015);
    pub const INVALID_OP: Self = Self(0x1018);
    pub const TIMEOUT: Self = Self(0x1019);
}

/// The text of a QMP code; `None` for other codes.
pub fn status_text(code: QmpStatus) -> Option<&'static CStr> {
    if code == QmpStatus::SUCCESS {
        return Some(c"QMP_SUCCESS: no error");
    }
    let index = usize::try_from(code.0.checked_sub(FIRST)?).ok()?;
    WORDS.get(index).copied()
}

const FIRST: c_int = 0x1001;

const WORDS: [&CStr; 25] = [
    c"QMP_ERROR: the operation failed",
    c"QMP_NOT_INITED: QMP is not initialised, or has been finalised",
    c"QMP_RTENV_ERR: the run-time environment is not usable",
    c"QMP_CPUINFO_ERR: no information about the processors",
    c"QMP_NODEINFO_ERR: no information about the nodes",
    c"QMP_NOMEM_ERR: there is not enough memory",
    c"QMP_MEMSIZE_ERR: a message is longer than its receive has room for",
    c"QMP_HOSTNAME_ERR: the name of the host cannot be found",
    c"QMP_INITSVC_ERR: the message passing service cannot be initialised",
    c"QMP_TOPOLOGY_EXISTS: a logical topology is declared already",
    c"QMP_CH_TIMEOUT: a channel did not open in time",
    c"QMP_NOTSUPPORTED: the operation is not supported",
    c"QMP_SVC_BUSY: the service is busy",
    c"QMP_BAD_MESSAGE: no live message handle",
    c"QMP_INVALID_ARG: an argument is not valid",
    c"QMP_INVALID_TOPOLOGY: the topology does not fit the nodes or the lattice",
    c"QMP_NONEIGHBOR_INFO: no neighbours are known, since no logical topology is declared",
    c"QMP_MEMSIZE_TOOBIG: the memory is too large",
    c"QMP_BAD_MEMORY: no live memory",
    c"QMP_NO_PORTS: there is no free port",
    c"QMP_NODE_OUTRANGE: there is no node of that number",
    c"QMP_CHDEF_ERR: the channel cannot be defined",
    c"QMP_MEMUSED_ERR: the memory is in use",
    c"QMP_INVALID_OP: the operation is not possible now",
    c"QMP_TIMEOUT: the message did not arrive in time",
];

/// An error: its code, and a text with what was given, what was expected, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QmpFailure {
    /// The code.
    pub status: QmpStatus,
    /// The text.
    pub text: String,
}

impl QmpFailure {
    /// An error with its text.
    pub fn new(status: QmpStatus, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { status, text }
    }

    /// The name of the code, and the text, as a C string.
    pub fn to_c(&self) -> CString {
        let name = status_text(self.status).map_or_else(String::new, |all| {
            let all = all.to_string_lossy();
            format!("{}: ", all.split(':').next().unwrap_or_default())
        });
        let text = format!("{name}{}", self.text).replace('\0', " ");
        CString::new(text).unwrap_or_default()
    }
}

/// The result of most functions.
pub type Result<T> = core::result::Result<T, QmpFailure>;

/// The outcome of the last operation of a message or thread.
#[derive(Default, Debug)]
pub struct OperationOutcome {
    status: c_int,
    text: Option<CString>,
}

impl OperationOutcome {
    /// Records the outcome of an operation.
    #[inline]
    pub fn set<T>(&mut self, result: &Result<T>) {
        match result {
            Ok(_) if self.is_success() => {}
            Ok(_) => *self = Self::default(),
            Err(failure) => self.fail(failure),
        }
    }

    /// Whether the operation succeeded.
    #[inline]
    pub fn is_success(&self) -> bool {
        self.status == 0
    }

    #[cold]
    fn fail(&mut self, failure: &QmpFailure) {
        self.status = failure.status.0;
        self.text = Some(failure.to_c());
    }

    /// The code.
    pub fn status(&self) -> QmpStatus {
        QmpStatus(self.status)
    }

    /// The text, which stays valid until the process ends: programs keep pointers to it.
    pub fn text(&self) -> &'static CStr {
        let kept = self.text.as_deref().and_then(|text| TEXTS.intern(text));
        kept.or_else(|| status_text(self.status()))
            .unwrap_or(c"an error of the library below")
    }
}

/// Interned texts that were returned to the program. They are never freed or changed, so their total size is bounded:
/// equal texts are stored once, and a new text that exceeds the room is not stored.
pub struct InternedTexts {
    room_bytes: usize,
    known: Mutex<InternedSet>,
}

/// The set of interned texts.
struct InternedSet {
    bytes: usize,
    texts: BTreeSet<&'static CStr>,
}

/// The interned texts of this process.
pub static TEXTS: InternedTexts = InternedTexts::with_room(1 << 20);

impl InternedTexts {
    /// An empty set with room for `room_bytes` bytes.
    pub const fn with_room(room_bytes: usize) -> Self {
        let known = InternedSet {
            bytes: 0,
            texts: BTreeSet::new(),
        };
        Self {
            room_bytes,
            known: Mutex::new(known),
        }
    }

    /// An equal text with static lifetime; `None` if there is no room for it.
    pub fn intern(&self, text: &CStr) -> Option<&'static CStr> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.texts.get(text) {
            return Some(found);
        }
        let bytes = known.bytes + text.to_bytes_with_nul().len();
        if bytes > self.room_bytes {
            return None;
        }
        let kept: &'static CStr = Box::leak(text.into());
        known.bytes = bytes;
        known.texts.insert(kept);
        Some(kept)
    }
}

thread_local! {
    static LAST: RefCell<OperationOutcome> = const { RefCell::new(OperationOutcome { status: 0, text: None }) };
}

/// Set as soon as an operation of any thread has failed. Before that, a success need not clear an error.
static HAS_FAILED: OnceLock<()> = OnceLock::new();

/// Passes the outcome of this thread's last operation to `visit`.
pub fn last_outcome<R>(visit: impl FnOnce(&OperationOutcome) -> R) -> R {
    LAST.with(|last| visit(&last.borrow()))
}

/// Records the outcome of this thread's last operation.
#[inline(always)]
pub fn record<T>(result: &Result<T>) {
    if result.is_err() || HAS_FAILED.get().is_some() {
        record_slow(result);
    }
}

#[cold]
#[inline(never)]
fn record_slow<T>(result: &Result<T>) {
    HAS_FAILED.get_or_init(|| ());
    LAST.with(|last| last.borrow_mut().set(result));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qmp_084_every_documented_status_has_a_distinct_text() {
        let mut seen = BTreeSet::new();
        for code in 0x1001..=0x1019 {
            let text = status_text(QmpStatus(code)).unwrap();
            assert!(seen.insert(text.to_owned()), "{text:?}");
        }
        assert_eq!(status_text(QmpStatus(0x101a)), None);
        assert_eq!(status_text(QmpStatus(15)), None);
        assert_eq!(status_text(QmpStatus(c_int::MIN)), None);
        assert!(
            status_text(QmpStatus::TIMEOUT)
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("QMP_TIMEOUT")
        );
        assert!(
            status_text(QmpStatus::INVALID_ARG)
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("QMP_INVALID_ARG")
        );
    }

    #[test]
    fn a_success_clears_the_previous_error() {
        let mut outcome = OperationOutcome::default();
        outcome.set::<()>(&Err(QmpFailure::new(QmpStatus::TIMEOUT, "after 3 s")));
        assert_eq!(outcome.status(), QmpStatus::TIMEOUT);
        assert_eq!(outcome.text(), c"QMP_TIMEOUT: after 3 s");
        outcome.set(&Ok(()));
        assert_eq!(
            (outcome.status(), outcome.text()),
            (QmpStatus::SUCCESS, c"QMP_SUCCESS: no error")
        );
    }

    #[test]
    fn error_texts_stay_valid_after_later_operations() {
        let mut outcome = OperationOutcome::default();
        let mut fail = |text: &str| {
            outcome.set::<()>(&Err(QmpFailure::new(QmpStatus::TIMEOUT, text)));
            outcome.text()
        };
        let (first, second, third) = (fail("after 3 s"), fail("after 4 s"), fail("after 3 s"));
        outcome.set(&Ok(()));
        assert_eq!(first, c"QMP_TIMEOUT: after 3 s");
        assert_eq!(second, c"QMP_TIMEOUT: after 4 s");
        assert!(core::ptr::eq(first, third), "equal texts are stored once");
    }

    #[test]
    fn interned_error_texts_are_bounded() {
        let kept = InternedTexts::with_room(10);
        let first = kept.intern(c"four");
        assert_eq!(first, Some(c"four"));
        assert_eq!(kept.intern(c"again"), None, "5 + 6 bytes");
        assert_eq!(kept.intern(c"more"), Some(c"more"));
        assert_eq!(kept.intern(c""), None);
        assert_eq!(kept.intern(c"four"), first, "known, so no room is needed");
    }
}
