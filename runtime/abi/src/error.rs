// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors: a class of the standard, and a text that states what was given and what was expected.
//!
//! A body returns [`Error`]; [`mod@crate::enter`] calls the error handler. The code that C gets is the class itself
//! (MPI 5.0 section 9.4 permits that), and `MPI_Error_string` appends the text of the last error if that error was of
//! this class.

use core::ffi::c_int;
use core::fmt;
use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use crate::c::{ERROR_CLASSES, MPI_MAX_ERROR_STRING};
use crate::enter::On;
use crate::error_added;

/// A result of a body, or of a part of a body.
pub type Result<T> = core::result::Result<T, Error>;

/// An error class of MPI 5.0 section 9.4, or a class or code that the program added.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ErrorClass(pub c_int);

impl ErrorClass {
    /// The standard's name; `None` for a class or code that the program added.
    pub fn name(self) -> Option<&'static str> {
        let found = ERROR_CLASSES.iter().find(|(number, _)| *number == self.0);
        found.map(|(_, name)| *name)
    }

    /// The text of the class.
    pub fn text(self) -> Option<&'static str> {
        let found = TEXTS.iter().find(|(class, _)| *class == self);
        found.map(|(_, text)| *text)
    }

    /// Whether the number is a class of the standard, or a class or code that the program added.
    pub fn is_known(self) -> bool {
        self.of_code().is_some()
    }

    /// Takes the number as an error code and returns its class. For a code of the standard or a class of the program,
    /// that is the number itself; for a code of the program, the class passed to `MPI_Add_error_code`. `None` for an
    /// unknown number.
    pub fn of_code(self) -> Option<Self> {
        match self.name() {
            Some(_) => Some(self),
            None => error_added::class_of(self.0).map(Self),
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => out.write_str(name),
            None => {
                let text = error_added::text_of(self.0).filter(|text| !text.is_empty());
                let text = text.map_or_else(String::new, |text| format!(": {text}"));
                write!(out, "error code {}{text}", self.0)
            }
        }
    }
}

/// The error of a call. One word, so that a `Result` is returned in a register.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<ErrorDetail>);

/// The contents of an [`Error`].
#[derive(Clone, PartialEq, Eq)]
struct ErrorDetail {
    class: ErrorClass,
    detail: Cow<'static, str>,
    on: Option<On>,
}

impl Error {
    /// An error of `class`; `detail` states what was given and what was expected, as a clause without a full stop.
    #[cold]
    pub fn new(class: ErrorClass, detail: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(ErrorDetail {
            class,
            detail: detail.into(),
            on: None,
        }))
    }

    /// Sets the object on which the error is raised, in place of the object in the call's parameters. For example,
    /// `MPI_Wait` raises errors on the communicator of its request.
    #[must_use]
    pub fn raised_on(mut self, on: On) -> Self {
        self.0.on = Some(on);
        self
    }

    /// The class, which is also the code that C gets.
    pub fn class(&self) -> ErrorClass {
        self.0.class
    }

    /// The text.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The object set by [`raised_on`](Self::raised_on). `None`: the error is raised on the object in the call's
    /// parameters.
    pub fn on(&self) -> Option<On> {
        self.0.on
    }

    /// The error for a pointer parameter `name` that is NULL.
    #[cold]
    pub fn null(name: &str) -> Self {
        Self::new(ErrorClass::ARG, format!("the parameter `{name}` is NULL"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.0.detail, self.0.class)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Error({self})")
    }
}

impl core::error::Error for Error {}

/// The last error that was returned to C.
static LAST: Mutex<Option<Error>> = Mutex::new(None);

/// Records `error` for `MPI_Error_string`.
pub fn remember(error: &Error) {
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
}

/// `MPI_Error_string` (MPI 5.0 section 9.4): the text of the class and, if the last error was of that class, the text
/// of that error; for a class or code of the program, the string that the program set.
pub fn string_of(code: c_int) -> Option<String> {
    let class = ErrorClass(code);
    let Some(name) = class.name() else {
        return error_added::text_of(code);
    };
    let mut text = format!("{name}: {}", class.text()?);
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = last.as_ref().filter(|error| error.class() == class) {
        text.push_str(": ");
        text.push_str(error.detail());
    }
    truncate(&mut text, MPI_MAX_ERROR_STRING - 1);
    Some(text)
}

/// Truncates `text` to at most `bytes`, between characters.
pub fn truncate(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
}

const TEXTS: &[(ErrorClass, &str)] = &[
    (ErrorClass(0), "no error"),
    (ErrorClass::BUFFER, "the buffer pointer is not valid"),
    (ErrorClass::COUNT, "the count is not valid"),
    (ErrorClass::TYPE, "the datatype is not valid"),
    (ErrorClass::TAG, "the tag is not valid"),
    (ErrorClass::COMM, "the communicator is not valid"),
    (ErrorClass::RANK, "the rank is not valid"),
    (ErrorClass::REQUEST, "the request or message is not valid"),
    (ErrorClass::ROOT, "the root is not valid"),
    (ErrorClass::GROUP, "the group is not valid"),
    (ErrorClass::OP, "the reduction operation is not valid"),
    (ErrorClass::TOPOLOGY, "the topology is not valid"),
    (ErrorClass::DIMS, "the dimension argument is not valid"),
    (ErrorClass::ARG, "an argument is not valid"),
    (ErrorClass::UNKNOWN, "unknown error"),
    (
        ErrorClass::TRUNCATE,
        "the message is longer than the receive buffer",
    ),
    (ErrorClass::OTHER, "other error"),
    (ErrorClass::INTERN, "internal error of the MPI library"),
    (ErrorClass::PENDING, "the operation is not complete"),
    (ErrorClass::IN_STATUS, "the error code is in the status"),
    (ErrorClass::ACCESS, "permission denied"),
    (
        ErrorClass::AMODE,
        "the access mode of the file is not valid",
    ),
    (ErrorClass::ASSERT, "the assertion argument is not valid"),
    (ErrorClass::BAD_FILE, "the file name is not valid"),
    (ErrorClass::BASE, "the base address is not valid"),
    (ErrorClass::CONVERSION, "a data conversion function failed"),
    (ErrorClass::DISP, "the displacement is not valid"),
    (
        ErrorClass::DUP_DATAREP,
        "the data representation is defined already",
    ),
    (ErrorClass::FILE_EXISTS, "the file exists"),
    (ErrorClass::FILE_IN_USE, "the file is in use by a process"),
    (ErrorClass::FILE, "the file handle is not valid"),
    (ErrorClass::INFO_KEY, "the info key is too long"),
    (ErrorClass::INFO_NOKEY, "the info object has no such key"),
    (ErrorClass::INFO_VALUE, "the info value is too long"),
    (ErrorClass::INFO, "the info object is not valid"),
    (ErrorClass::IO, "input or output failed"),
    (ErrorClass::KEYVAL, "the attribute key is not valid"),
    (ErrorClass::LOCKTYPE, "the lock type is not valid"),
    (ErrorClass::NAME, "the service name is not published"),
    (ErrorClass::NO_MEM, "no memory is left"),
    (
        ErrorClass::NOT_SAME,
        "an argument differs between processes of a collective call",
    ),
    (ErrorClass::NO_SPACE, "no space is left on the device"),
    (ErrorClass::NO_SUCH_FILE, "the file does not exist"),
    (ErrorClass::PORT, "the port name is not valid"),
    (ErrorClass::QUOTA, "the quota is exceeded"),
    (
        ErrorClass::READ_ONLY,
        "the file or file system is read-only",
    ),
    (ErrorClass::RMA_ATTACH, "the memory cannot be attached"),
    (ErrorClass::RMA_CONFLICT, "accesses to the window conflict"),
    (
        ErrorClass::RMA_RANGE,
        "the target memory is not part of the window",
    ),
    (ErrorClass::RMA_SHARED, "the memory cannot be shared"),
    (
        ErrorClass::RMA_SYNC,
        "the synchronization of the window is wrong",
    ),
    (
        ErrorClass::SERVICE,
        "publishing or unpublishing the name failed",
    ),
    (ErrorClass::SIZE, "the size is not valid"),
    (ErrorClass::SPAWN, "processes could not be spawned"),
    (
        ErrorClass::UNSUPPORTED_DATAREP,
        "the data representation is not supported",
    ),
    (
        ErrorClass::UNSUPPORTED_OPERATION,
        "the operation is not supported",
    ),
    (ErrorClass::WIN, "the window is not valid"),
    (
        ErrorClass::RMA_FLAVOR,
        "the flavor of the window does not allow the operation",
    ),
    (ErrorClass::PROC_ABORTED, "a peer process has ended"),
    (
        ErrorClass::VALUE_TOO_LARGE,
        "the value does not fit in its type",
    ),
    (ErrorClass::SESSION, "the session is not valid"),
    (ErrorClass::ERRHANDLER, "the error handler is not valid"),
    (ErrorClass::ABI, "the Fortran ABI information is not valid"),
    (
        ErrorClass::T_CANNOT_INIT,
        "the tool interface cannot be initialized now",
    ),
    (
        ErrorClass::T_NOT_ACCESSIBLE,
        "the tool interface cannot be reached now",
    ),
    (
        ErrorClass::T_NOT_INITIALIZED,
        "the tool interface is not initialized",
    ),
    (
        ErrorClass::T_NOT_SUPPORTED,
        "the tool interface does not support this",
    ),
    (ErrorClass::T_MEMORY, "no memory is left"),
    (ErrorClass::T_INVALID, "a parameter is not valid"),
    (ErrorClass::T_INVALID_INDEX, "the index is not valid"),
    (ErrorClass::T_INVALID_ITEM, "the item is not valid"),
    (ErrorClass::T_INVALID_SESSION, "the session is not valid"),
    (ErrorClass::T_INVALID_HANDLE, "the handle is not valid"),
    (
        ErrorClass::T_INVALID_NAME,
        "no variable or category has this name",
    ),
    (ErrorClass::T_OUT_OF_HANDLES, "no more handles are left"),
    (ErrorClass::T_OUT_OF_SESSIONS, "no more sessions are left"),
    (
        ErrorClass::T_CVAR_SET_NOT_NOW,
        "the variable cannot be set at this time",
    ),
    (
        ErrorClass::T_CVAR_SET_NEVER,
        "the variable cannot be set any more",
    ),
    (
        ErrorClass::T_PVAR_NO_WRITE,
        "the variable cannot be written",
    ),
    (
        ErrorClass::T_PVAR_NO_STARTSTOP,
        "the variable cannot be started or stopped",
    ),
    (
        ErrorClass::T_PVAR_NO_ATOMIC,
        "the variable cannot be read and reset at once",
    ),
];

impl From<runtime::Error> for Error {
    fn from(error: runtime::Error) -> Self {
        Self::new(class_of(&error), error.to_string())
    }
}

/// The standard's class of a runtime error.
fn class_of(error: &runtime::Error) -> ErrorClass {
    match error {
        runtime::Error::RequestsExhausted(_) => ErrorClass::NO_MEM,
        runtime::Error::Truncated { .. }
        | runtime::Error::Unequal { .. }
        | runtime::Error::Mismatched { .. } => ErrorClass::TRUNCATE,
        runtime::Error::Collective(error) => class_of(error),
        _ => ErrorClass::OTHER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_class_of_the_standard_has_a_text() {
        for (number, name) in ERROR_CLASSES {
            let class = ErrorClass(*number);
            assert_eq!(class.name(), Some(*name));
            assert!(class.text().is_some(), "{name}");
        }
        assert_eq!(TEXTS.len(), ERROR_CLASSES.len());
    }

    #[test]
    fn error_string_appends_the_detail_of_the_last_error() {
        remember(&Error::new(
            ErrorClass::DIMS,
            "dimension 3 of 2 was requested",
        ));
        let text = string_of(ErrorClass::DIMS.0).unwrap();
        assert!(
            text.starts_with("MPI_ERR_DIMS: the dimension argument is not valid: "),
            "{text}"
        );
        assert!(text.ends_with("dimension 3 of 2 was requested"), "{text}");
        assert!(!string_of(ErrorClass::OP.0).unwrap().contains("dimension 3"));
        assert_eq!(string_of(4242), None);
    }

    #[test]
    fn a_long_error_text_is_truncated_between_characters() {
        let mut text = "é".repeat(300);
        truncate(&mut text, 511);
        assert_eq!(text.len(), 510);
    }

    #[test]
    fn a_result_has_the_size_of_a_pointer() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }
}
