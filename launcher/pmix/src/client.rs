// SPDX-License-Identifier: MIT OR Apache-2.0
//! PMIx client: a process of a job, with calls of the PMIx library.
//!
//! # Safety
//! - Strings and structures that are passed to a call stay valid during the call, and the library copies them. The
//!   directives of a fence are never freed.
//! - The state of a fence is never freed: the library may call back late, or twice.
//! - A value that the library returns is read before it is freed, and not shared. Only the field of its union that its
//!   type tag names is read. The terminating zero byte of a string is searched only in its first [`MOST_TEXT_BYTES`]
//!   bytes.

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
    /// Result of the pending fence, set by its callback; `None` if no fence is pending.
    fence: Option<&'static OnceLock<Status>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rank, size) = (self.me.rank, self.size);
        write!(out, "Client(rank {rank} of {size})")
    }
}

impl Client {
    /// Opens the library and initializes it, which connects to the server that the environment names.
    ///
    /// # Errors
    /// When there is no library, or the server does not respond.
    pub fn begin() -> Result<Self, Error> {
        Self::begin_with(Functions::load()?)
    }

    fn begin_with(functions: Functions) -> Result<Self, Error> {
        let mut me = Proc::none();
        // SAFETY: `me` has room for one process, and there are no directives.
        let status = unsafe { (functions.init)(&raw mut me, ptr::null_mut(), 0) };
        let mut client = Self {
            functions,
            me,
            size: 0,
            app: 0,
            fence: None,
        };
        client.check("PMIx_Init", status)?;
        // Later calls pass the namespace as a C string, which must not be empty.
        if client.job().is_empty() {
            return Err(Error::Missing("what the job is called"));
        }
        let size = client.number(ALL_RANKS, c"pmix.job.size")?;
        client.size = size.ok_or(Error::Missing("how many processes the job has"))?;
        // Not all launchers report the index of the program.
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

    /// Index of this process's program on the command line; 0 if the server does not report it.
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
        // SAFETY: the arguments are a C string and a value with a C string, which the library copies.
        let status = unsafe { (self.functions.put)(GLOBAL, key.as_ptr(), &raw mut given) };
        self.check("PMIx_Put", status)
    }

    /// The value that rank `rank` put under a key before the last fence; `None` if there is none.
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
            // SAFETY: `text` is not null, and is a C string that the library keeps until the value is freed.
            let length = unsafe { libc::strnlen(text, MOST_TEXT_BYTES) };
            // SAFETY: `text` is valid as above, and has at least `length` bytes.
            let bytes = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), length) };
            let is_whole = length < MOST_TEXT_BYTES;
            is_whole.then(|| String::from_utf8_lossy(bytes).into_owned())
        };
        self.get_value(rank, &string(key), read)
    }

    fn number(&self, rank: u32, key: &CStr) -> Result<Option<u32>, Error> {
        self.get_value(rank, key, |value| {
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

    fn get_value<T>(
        &self,
        rank: u32,
        key: &CStr,
        read: impl FnOnce(&PmixValue) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let of = self.me.with_rank(rank);
        // Without this directive the library blocks until the key is put.
        let at_once = Info::on("pmix.immediate");
        let mut found: *mut PmixValue = ptr::null_mut();
        // SAFETY: the arguments are a process, a C string, one directive, and room for a pointer.
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
        // SAFETY: `found` is null, or points to a value that the library allocated for this call.
        let Some(value) = (unsafe { found.as_ref() }) else {
            return Ok(None);
        };
        let read = read(value);
        if let Some(free) = self.functions.free_value {
            // SAFETY: `found` is one value that the library has allocated. It is not used after this call.
            unsafe { free(found, 1) };
        }
        Ok(read)
    }

    /// Starts a fence, in which all processes of the job participate: values put before the fence can be read after it.
    ///
    /// # Errors
    /// When the library returns an error.
    pub fn begin_fence(&mut self) -> Result<(), Error> {
        // SAFETY: no arguments.
        self.check("PMIx_Commit", unsafe { (self.functions.commit)() })?;
        // State and directive are never freed, since the library may call back at any later time. They are small, and
        // there are few fences.
        let state: &'static OnceLock<Status> = Box::leak(Box::default());
        let theirs = ptr::from_ref(state).cast_mut().cast::<c_void>();
        let collect: *const Info = Box::leak(Box::new(Info::on("pmix.collect")));
        // SAFETY: a null pointer with count 0 means all processes; the directive and the state of the callback are
        // never freed.
        let status = unsafe { (self.functions.fence)(ptr::null(), 0, collect, 1, done, theirs) };
        match status {
            SUCCESS => self.fence = Some(state),
            // The fence is complete, and the library does not call back.
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

    /// Ends the job with exit code `code`.
    ///
    /// # Errors
    /// When the library returns an error.
    pub fn abort(&mut self, code: i32, message: &str) -> Result<(), Error> {
        let message = string(message);
        // SAFETY: `message` is a C string; a null pointer with count 0 means all processes.
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
        // SAFETY: the only argument is a number.
        let description = unsafe { (self.functions.error_string)(status) };
        let description = match description.is_null() {
            true => "no reason given".into(),
            // SAFETY: `description` is not null, and is a C string that the library never frees.
            false => unsafe { CStr::from_ptr(description) }.to_string_lossy(),
        };
        let why = format!("{description} ({status})");
        Err(Error::Call { function, why })
    }
}

/// Callback of a fence. A thread of the library may call it.
unsafe extern "C" fn done(status: Status, state: *mut c_void) {
    // SAFETY: `state` is null, or the pointer from `begin_fence` to a `OnceLock` that is never freed and to which only
    // shared references exist.
    let state = unsafe { state.cast::<OnceLock<Status>>().cast_const().as_ref() };
    // Only the first call counts.
    let _ = state.map(|state| state.set(status));
}

fn string(text: &str) -> CString {
    let bytes = text.bytes().filter(|byte| *byte != 0).collect::<Vec<u8>>();
    CString::new(bytes).unwrap_or_default()
}

/// Maximum size of a string that [`Client::get`] returns, in bytes, with its terminating zero byte. A longer string
/// counts as no value.
const MOST_TEXT_BYTES: usize = 1 << 20;
/// `PMIX_OPERATION_SUCCEEDED`.
const OPERATION_SUCCEEDED: Status = -157;
