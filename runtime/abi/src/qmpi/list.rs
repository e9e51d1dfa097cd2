// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user's list of tools, read once.
//!
//! `RMPI_TOOLS=outer:inner` names the tools, the outermost first; a repeated name makes several instances. A tool is
//! either already in the process, linked or preloaded, or this module loads it: `name=/path/libtool.so`, or only the
//! path if the library has one tool.
//!
//! # Safety
//! This module loads the libraries that the user names, and calls the callbacks that the tools in them registered (Q1).
#![allow(unsafe_code, reason = "loads what the user names")]

use core::cell::Cell;
use core::ffi::CStr;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::sync::{Mutex, Once, PoisonError};

use super::stack::{MAX_INSTANCES, ToolAnnouncement, builder, stack};
use super::{number_of, settled};

/// The environment variables for the list; the first that is set and not empty is used. The first is rmpi's own. The
/// second is in MPICH's documentation; MPICH itself reads the others.
const LISTS: &[&str] = &[
    "RMPI_TOOLS",
    "QMPI_TOOL_LIST",
    "MPIR_CVAR_QMPI_TOOL_LIST",
    "MPICH_QMPI_TOOL_LIST",
    "MPIR_PARAM_QMPI_TOOL_LIST",
];

static COMPLAINTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    /// Whether this thread is building the stack.
    static SETTLING: Cell<bool> = const { Cell::new(false) };
}

/// Builds the stack at the first call. Returns `true` if the stack is built and not empty.
///
/// While the stack is built, MPI calls of the tools' callbacks go to MPI itself (`false`), and other threads wait.
pub(super) fn settle() -> bool {
    static ONCE: Once = Once::new();
    if SETTLING.get() {
        return false;
    }
    ONCE.call_once(|| {
        SETTLING.set(true);
        if let Some((variable, text)) = given() {
            for item in text
                .split(|byte| *byte == b':')
                .filter(|item| !item.is_empty())
            {
                if let Err(complaint) = add(item) {
                    complain(format!("{variable}: {complaint}"));
                }
            }
        }
        builder().finish();
        settled();
        SETTLING.set(false);
    });
    stack().is_some()
}

/// Returns the error messages about the list, and clears them. One rank of the job prints them.
pub fn take_complaints() -> Vec<String> {
    core::mem::take(&mut *COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner))
}

fn complain(text: String) {
    COMPLAINTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(text);
}

fn given() -> Option<(&'static str, Vec<u8>)> {
    let set = |name: &&'static str| {
        let value = std::env::var_os(name).map(OsString::into_vec)?;
        (!value.is_empty()).then_some((*name, value))
    };
    LISTS.iter().find_map(set)
}

/// Adds an instance of a tool for one item of the list.
fn add(item: &[u8]) -> Result<(), String> {
    let tool = match parse_item(item) {
        ToolListItem::Name(name) => announced(name)?,
        ToolListItem::Library(name, path) => from_library(name, path)?,
    };
    let number = {
        let mut builder = builder();
        if builder.count() == MAX_INSTANCES {
            return Err(format!(
                "\"{}\" is one too many: {MAX_INSTANCES} tools can be stacked",
                show(item)
            ));
        }
        builder.begin()
    };
    // SAFETY: the tool registered this function as its callback (Q1). The callback locks the builder when it registers
    // functions, so the builder is not locked here.
    unsafe { (tool.callback)(number_of(number)) };
    builder().end();
    Ok(())
}

/// The registered tool of this name.
fn announced(name: &[u8]) -> Result<ToolAnnouncement, String> {
    let builder = builder();
    if let Some(tool) = builder.named(name) {
        return Ok(tool.clone());
    }
    let names: Vec<String> = builder.names().map(show).collect();
    let known = if names.is_empty() {
        "none in this process".to_owned()
    } else {
        names.join(", ")
    };
    Err(format!(
        "no tool is called \"{0}\"; there is {known}. link or preload the library that has it, or give its path: \
         {0}=/path/to/library.so",
        show(name)
    ))
}

/// An item of the list.
#[derive(Debug, PartialEq, Eq)]
enum ToolListItem<'a> {
    Name(&'a [u8]),
    /// A library, and optionally the name of a tool in it.
    Library(Option<&'a [u8]>, &'a [u8]),
}

fn parse_item(item: &[u8]) -> ToolListItem<'_> {
    let equals = item.iter().position(|byte| *byte == b'=');
    let slash = item.iter().position(|byte| *byte == b'/');
    match (equals, slash) {
        // An `=` after a slash belongs to the path.
        (Some(equals), slash) if slash.is_none_or(|slash| equals < slash) => {
            ToolListItem::Library(Some(&item[..equals]), &item[equals + 1..])
        }
        (_, Some(_)) => ToolListItem::Library(None, item),
        _ => ToolListItem::Name(item),
    }
}

/// Loads a library, unless it is loaded already, and returns a tool that it registered: the tool `name`, or the only
/// one.
fn from_library(name: Option<&[u8]>, path: &[u8]) -> Result<ToolAnnouncement, String> {
    builder().set_library(path);
    let loaded = load(path);
    builder().set_library(b"");
    loaded?;
    let builder = builder();
    let mut there = builder.of_library(path);
    let found = match name {
        Some(name) => there.find(|tool| tool.name == name),
        None => match (there.next(), there.next()) {
            (Some(_), Some(_)) => {
                let names: Vec<String> = builder.of_library(path).map(|t| show(&t.name)).collect();
                return Err(format!(
                    "{0} has several tools ({1}): specify one of them, as in {2}={0}",
                    show(path),
                    names.join(", "),
                    names[0]
                ));
            }
            (one, _) => one,
        },
    };
    found.cloned().ok_or_else(|| match name {
        Some(name) => format!(
            "{} has no tool that is called \"{}\"",
            show(path),
            show(name)
        ),
        None => format!(
            "{} has no tool: nothing in it called QMPI_Register_tool_name when it was loaded",
            show(path)
        ),
    })
}

fn load(path: &[u8]) -> Result<(), String> {
    let name = CString::new(path).map_err(|_| "a path with a zero byte".to_owned())?;
    // SAFETY: a C string. The user is responsible for the library's constructors; the library is never unloaded.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !handle.is_null() {
        return Ok(());
    }
    // SAFETY: returns the loader's message for the failed call above; messages are kept per thread.
    let text = unsafe { libc::dlerror() };
    let why = (!text.is_null()).then(|| {
        // SAFETY: a C string, copied immediately.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    });
    let why = why.unwrap_or_else(|| "the loader gives no reason".to_owned());
    Err(format!("cannot load the tool {}: {why}", show(path)))
}

fn show(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_list_item_is_a_name_a_path_or_both() {
        assert_eq!(parse_item(b"trace"), ToolListItem::Name(b"trace"));
        assert_eq!(
            parse_item(b"/a/t.so"),
            ToolListItem::Library(None, b"/a/t.so")
        );
        assert_eq!(
            parse_item(b"./t.so"),
            ToolListItem::Library(None, b"./t.so")
        );
        assert_eq!(
            parse_item(b"x=t.so"),
            ToolListItem::Library(Some(b"x"), b"t.so")
        );
        assert_eq!(
            parse_item(b"x=/a/t.so"),
            ToolListItem::Library(Some(b"x"), b"/a/t.so")
        );
        assert_eq!(
            parse_item(b"/a=b/t.so"),
            ToolListItem::Library(None, b"/a=b/t.so")
        );
    }

    #[test]
    fn unknown_or_unloadable_tool_error_states_the_remedy() {
        let error = add(b"nowhere").unwrap_err();
        assert!(
            error.contains("no tool is called \"nowhere\"") && error.contains("nowhere=/path"),
            "{error}"
        );
        let error = add(b"/nowhere/lib.so").unwrap_err();
        assert!(
            error.starts_with("cannot load the tool /nowhere/lib.so: "),
            "{error}"
        );
    }
}
