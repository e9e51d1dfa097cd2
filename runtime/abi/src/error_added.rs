// SPDX-License-Identifier: MIT OR Apache-2.0
//! Error classes, codes and strings that the program adds (MPI 5.0 section 9.5). All functions may be called at any
//! time.

use core::ffi::{CStr, c_int};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::args::OutArg;
use crate::c::{MPI_ERR_LASTCODE, MPI_MAX_ERROR_STRING, MPI_SUCCESS};
use crate::error::{Error, ErrorClass, Result, truncate};

/// `MPI_Add_error_class`.
pub fn add_error_class(class: OutArg<'_, c_int>) -> Result<()> {
    class.set(add(None)?);
    Ok(())
}

/// `MPI_Add_error_code`.
pub fn add_error_code(class: c_int, code: OutArg<'_, c_int>) -> Result<()> {
    check_class(class)?;
    code.set(add(Some(class))?);
    Ok(())
}

/// `MPI_Add_error_string`: sets or replaces the string of a class or code.
pub fn add_error_string(code: c_int, string: &CStr) -> Result<()> {
    let mut text = string.to_string_lossy().into_owned();
    truncate(&mut text, MPI_MAX_ERROR_STRING - 1);
    change(code, |entry| entry.text = text)
}

/// `MPI_Remove_error_class`.
pub fn remove_error_class(class: c_int) -> Result<()> {
    let mut added = added();
    match added.get(&class) {
        None => return Err(not_added(class)),
        Some(AddedError {
            class: Some(of), ..
        }) => {
            let detail = format!("{class} is an error code of the class {of}, not an error class");
            return Err(Error::new(ErrorClass::ARG, detail));
        }
        Some(_) => {}
    }
    let codes = added.values().filter(|entry| entry.class == Some(class));
    let count = codes.count();
    if count > 0 {
        let s = if count == 1 { "" } else { "s" };
        let detail =
            format!("the error class {class} has {count} error code{s}; remove the code{s} first");
        return Err(Error::new(ErrorClass::OTHER, detail));
    }
    check_no_string(class, added.get(&class))?;
    added.remove(&class);
    Ok(())
}

/// `MPI_Remove_error_code`.
pub fn remove_error_code(code: c_int) -> Result<()> {
    let mut added = added();
    match added.get(&code) {
        None => Err(not_added(code)),
        Some(AddedError { class: None, .. }) => {
            let detail = format!("{code} is an error class, not an error code");
            Err(Error::new(ErrorClass::ARG, detail))
        }
        entry @ Some(_) => {
            check_no_string(code, entry)?;
            added.remove(&code);
            Ok(())
        }
    }
}

/// Checks that a class or code has no string. One with a string cannot be removed.
fn check_no_string(code: c_int, entry: Option<&AddedError>) -> Result<()> {
    if entry.is_none_or(|entry| entry.text.is_empty()) {
        return Ok(());
    }
    let detail =
        format!("{code} has an error string; remove it first with MPI_Remove_error_string");
    Err(Error::new(ErrorClass::OTHER, detail))
}

/// `MPI_Remove_error_string`.
pub fn remove_error_string(code: c_int) -> Result<()> {
    change(code, |entry| entry.text.clear())
}

/// The class of the program's code `code`; `code` itself if it is a class of the program; `None` for other numbers.
pub(crate) fn class_of(code: c_int) -> Option<c_int> {
    added().get(&code).map(|entry| entry.class.unwrap_or(code))
}

/// The string of a class or code of the program, initially empty; `None` for other numbers.
pub(crate) fn text_of(code: c_int) -> Option<String> {
    added().get(&code).map(|entry| entry.text.clone())
}

/// The value of `MPI_LASTUSEDCODE`: the highest class or code in use.
pub(crate) fn last_used_code() -> c_int {
    let added = added();
    added
        .last_key_value()
        .map_or(MPI_ERR_LASTCODE, |(code, _)| *code)
}

/// An error class or code that the program has added.
struct AddedError {
    /// The class of a code; `None` if this is a class.
    class: Option<c_int>,
    text: String,
}

static ADDED: Mutex<BTreeMap<c_int, AddedError>> = Mutex::new(BTreeMap::new());

fn added() -> MutexGuard<'static, BTreeMap<c_int, AddedError>> {
    ADDED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(class: Option<c_int>) -> Result<c_int> {
    let number = last_used_code().checked_add(1);
    let number = number
        .ok_or_else(|| Error::new(ErrorClass::OTHER, "the program used up all error codes"))?;
    let text = String::new();
    added().insert(number, AddedError { class, text });
    Ok(number)
}

fn change(code: c_int, action: impl FnOnce(&mut AddedError)) -> Result<()> {
    match added().get_mut(&code) {
        Some(entry) => {
            action(entry);
            Ok(())
        }
        None => Err(not_added(code)),
    }
}

fn check_class(class: c_int) -> Result<()> {
    let of_the_program = added().get(&class).map(|entry| entry.class);
    match of_the_program {
        Some(None) => Ok(()),
        Some(Some(of)) => {
            let detail = format!("{class} is an error code of the class {of}, not an error class");
            Err(Error::new(ErrorClass::ARG, detail))
        }
        None if class == MPI_SUCCESS || ErrorClass(class).name().is_some() => Ok(()),
        None => Err(not_added(class)),
    }
}

fn not_added(code: c_int) -> Error {
    let detail = match ErrorClass(code).name() {
        Some(name) => format!("{name} belongs to MPI, it is no class or code of the program"),
        None => format!("{code} is no error class or code that the program added"),
    };
    Error::new(ErrorClass::ARG, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test for all, because the process has only one set of codes.
    #[test]
    fn error_classes_codes_and_strings_can_be_added_and_removed() {
        let class = add(None).unwrap();
        let code = add(Some(class)).unwrap();
        assert!(class > MPI_ERR_LASTCODE && code > class);
        assert_eq!(last_used_code(), code);
        assert_eq!(
            (class_of(class), class_of(code)),
            (Some(class), Some(class))
        );
        assert_eq!(text_of(code).as_deref(), Some(""));
        add_error_string(code, c"too many cooks").unwrap();
        assert_eq!(text_of(code).as_deref(), Some("too many cooks"));
        assert_eq!(
            ErrorClass(code).to_string(),
            format!("error code {code}: too many cooks")
        );
        let refused = remove_error_code(code).unwrap_err();
        assert!(
            refused.detail().contains("has an error string"),
            "{refused}"
        );
        remove_error_string(code).unwrap();
        assert_eq!(text_of(code).as_deref(), Some(""));

        let refused = remove_error_class(class).unwrap_err();
        assert_eq!(refused.class(), ErrorClass::OTHER);
        assert!(refused.detail().contains("has 1 error code;"), "{refused}");
        assert_eq!(
            remove_error_class(code).unwrap_err().class(),
            ErrorClass::ARG
        );
        assert_eq!(
            remove_error_code(class).unwrap_err().class(),
            ErrorClass::ARG
        );
        remove_error_code(code).unwrap();
        remove_error_class(class).unwrap();
        assert_eq!((class_of(code), last_used_code()), (None, MPI_ERR_LASTCODE));
        for own in [MPI_SUCCESS, ErrorClass::ARG.0] {
            let refused = add_error_string(own, c"mine").unwrap_err();
            assert!(refused.detail().contains("belongs to MPI"), "{refused}");
        }
    }
}
