// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process of a job, on top of the PMIx library.
//!
//! # Safety
//! - Strings and structures that are passed to a call live longer than it, and the library copies them; the
//!   directives of a fence are never freed.
//! - The state of a fence is never freed: the library may call back late, or twice.
//! - A value that the library returns is read before it is freed, and not shared. The field of its union is the one
//!   of its type; the terminating zero byte of a string is searched in its first [`MOST_TEXT_BYTES`] only.

#[cfg(test)]
mod tests;

use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use std::ffi::CString;
use std::sync::OnceLock;

use crate::Error;
use crate::table::Functions;
use crate::types::{
    ALL_RANKS, GLOBAL, INT, Info, NOT_FOUND, PmixValue, Proc, RANK, STRING, SUCCESS, Status,
    UINT16, UINT32,
};

/// A process of a job that was started by a launcher with PMIx.
pub struct Client {
    functions: Functions,
    me: Proc,
    size: u32,
    app: u32,
    /// Result of the fence that was started.
    fence: Option<&'static OnceLock<Status>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rank, size) = (self.me.rank, self.size);
        write!(out, "Client(rank {rank} of {size})")
    }
}

impl Client {
    /// Opens the library, and initializes it with the server that the environment names.
    ///
    /// # Errors
    /// When there is no library, or the server does not respond.
    pub fn begin() -> Result<Self, Error> {
        Self::begin_with(Functions::load()?)
    }

    fn begin_with(functions: Functions) -> Result<Self, Error> {
        let mut me = Proc::none();
        // SAFETY: room for one process, and no directives.
        let status = unsafe { (functions.init)(&raw mut me, ptr::null_mut(), 0) };
        let mut client = Self {
            functions,
            me,
            size: 0,
            app: 0,
            fence: None,
        };
        client.check("PMIx_Init", status)?;
        // Later calls pass it as a C string.
        if client.job().is_empty() {
            return Err(Error::Missing("what the job is called"));
        }
        let size = client.number(ALL_RANKS, c"pmix.job.size")?;
        client.size = size.ok_or(Error::Missing("how many processes the job has"))?;
        // Not all launchers support it.
        let app = client.number(me.rank, c"pmix.appnum");
        client.app = app.ok().flatten().unwrap_or(0);
        Ok(client)
    }

    /// Rank of this process.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.me.rank
    }

    /// Number of processes of the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Index of its program on the command line; 0 if the server does not report it.
    #[must_use]
    pub fn app(&self) -> u32 {
        self.app
    }

    /// The job's namespace.
    #[must_use]
    pub fn job(&self) -> String {
        let bytes = self.me.namespace.map(c_char::cast_unsigned);
        let name = CStr::from_bytes_until_nul(&bytes);
        name.map_or_else(
            |_| String::new(),
            |name| name.to_string_lossy().into_owned(),
        )
    }

    /// Stores a pair, which other processes can get after a fence.
    ///
    /// # Errors
    /// When the library returns an error.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), Error> {
        let (key, value) = (string(key), string(value));
        let mut given = PmixValue::of_string(value.as_ptr().cast_mut());
        // SAFETY: strings of C and a value, which the library copies.
        let status = unsafe { (self.functions.put)(GLOBAL, key.as_ptr(), &raw mut given) };
        self.check("PMIx_Put", status)
    }

    /// The value that the process of that rank put under a key before the last fence, if any.
    ///
    /// # Errors
    /// When the library returns an error.
    pub fn get(&mut self, rank: u32, key: &str) -> Result<Option<String>, Error> {
        let read = |value: &PmixValue| {
            if value.kind != STRING {
                return None;
            }
            // SAFETY: a value of this type has this part of the union.
            let text = unsafe { value.data.string };
            if text.is_null() {
                return None;
            }
            // SAFETY: not null, and a string of C that is the library's until the value is freed.
            let length = unsafe { libc::strnlen(text, MOST_TEXT_BYTES) };
            // SAFETY: as above, and it has this many bytes at least.
            let bytes = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), length) };
            let is_whole = length < MOST_TEXT_BYTES;
            is_whole.then(|| String::from_utf8_lossy(bytes).into_owned())
        };
        self.look(rank, &string(key), read)
    }

    fn number(&self, rank: u32, key: &CStr) -> Result<Option<u32>, Error> {
        self.look(rank, key, |value| {
            let data = &value.data;
            match value.kind {
                // SAFETY: a value of this type has this part of the union.
                UINT32 | RANK => Some(unsafe { data.uint32 }),
                // SAFETY: as above.
                INT => u32::try_from(unsafe { data.int }).ok(),
                // SAFETY: as above.
                UINT16 => Some(unsafe { data.uint16 }.into()),
                _ => None,
            }
        })
    }

    fn look<T>(
        &self,
        rank: u32,
        key: &CStr,
        read: impl FnOnce(&PmixValue) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let of = self.me.with_rank(rank);
        // Without it the library blocks until the key is put.
        let at_once = Info::on("pmix.immediate");
        let mut found: *mut PmixValue = ptr::null_mut();
        // SAFETY: a process, a string of C, one directive, and room for a pointer.
        let status = unsafe {
            (self.functions.get)(
                &raw const of,
                key.as_ptr(),
                &raw const at_once,
                1,
                &raw mut found,
            )
        };
        if status == NOT_FOUND {
            return Ok(None);
        }
        self.check("PMIx_Get", status)?;
        // SAFETY: null, or a value that the library allocated for this call.
        let Some(value) = (unsafe { found.as_ref() }) else {
            return Ok(None);
        };
        let read = read(value);
        if let Some(free) = self.functions.free_value {
            // SAFETY: one value that the library has made, which is not used any more. Where there is no such function, it stays.
            unsafe { free(found, 1) };
        }
        Ok(read)
    }

    /// Starts a fence, in which all processes of the job participate: values put before it can be read after it.
    ///
    /// # Errors
    /// When the library returns an error.
    pub fn begin_fence(&mut self) -> Result<(), Error> {
        // SAFETY: no arguments.
        self.check("PMIx_Commit", unsafe { (self.functions.commit)() })?;
        // Never freed, as long as the library may call back; they are small, and there are few fences.
        let state: &'static OnceLock<Status> = Box::leak(Box::default());
        let theirs = ptr::from_ref(state).cast_mut().cast::<c_void>();
        let collect: *const Info = Box::leak(Box::new(Info::on("pmix.collect")));
        // SAFETY: all processes, one directive that is never freed, and a callback with its state, which is never freed.
        let status = unsafe { (self.functions.fence)(ptr::null(), 0, collect, 1, done, theirs) };
        match status {
            SUCCESS => self.fence = Some(state),
            // Completed at once, without a callback.
            OPERATION_SUCCEEDED => self.fence = None,
            failed => return self.check("PMIx_Fence_nb", failed),
        }
        Ok(())
    }

    /// Whether the last fence is over, or none was started. Does not block.
    ///
    /// # Errors
    /// When the fence failed.
    pub fn is_fence_over(&mut self) -> Result<bool, Error> {
        let Some(state) = self.fence else {
            return Ok(true);
        };
        let Some(status) = state.get().copied() else {
            return Ok(false);
        };
        self.fence = None;
        self.check("PMIx_Fence_nb", status)?;
        Ok(true)
    }

    /// Ends the job with this status.
    ///
    /// # Errors
    /// When the library returns an error.
    pub fn abort(&mut self, code: i32, message: &str) -> Result<(), Error> {
        let message = string(message);
        // SAFETY: a string of C; no processes are all of them.
        let status = unsafe { (self.functions.abort)(code, message.as_ptr(), ptr::null_mut(), 0) };
        self.check("PMIx_Abort", status)
    }

    /// Reports that this process is done, so that its exit is no failure.
    ///
    /// # Errors
    /// When the library returns an error.
    pub fn finalize(&mut self) -> Result<(), Error> {
        // SAFETY: no directives.
        let status = unsafe { (self.functions.finalize)(ptr::null(), 0) };
        self.check("PMIx_Finalize", status)
    }

    fn check(&self, function: &'static str, status: Status) -> Result<(), Error> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: a number.
        let words = unsafe { (self.functions.error_string)(status) };
        let words = match words.is_null() {
            true => "no reason given".into(),
            // SAFETY: not null, a string of C that stays.
            false => unsafe { CStr::from_ptr(words) }.to_string_lossy(),
        };
        let why = format!("{words} ({status})");
        Err(Error::Call { function, why })
    }
}

/// Callback of a fence: called by a thread of the library.
unsafe extern "C" fn done(status: Status, state: *mut c_void) {
    // SAFETY: null, or the pointer from `begin_fence`, to a state that is only shared and never freed.
    let state = unsafe { state.cast::<OnceLock<Status>>().cast_const().as_ref() };
    // Only the first call counts.
    let _ = state.map(|state| state.set(status));
}

fn string(text: &str) -> CString {
    let bytes = text.bytes().filter(|byte| *byte != 0).collect::<Vec<u8>>();
    CString::new(bytes).unwrap_or_default()
}

/// Longer strings are not ours.
const MOST_TEXT_BYTES: usize = 1 << 20;
/// `PMIX_OPERATION_SUCCEEDED`.
const OPERATION_SUCCEEDED: Status = -157;
