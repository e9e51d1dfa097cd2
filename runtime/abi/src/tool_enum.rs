// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI 5.0 section 15.3.5: enumerations. Each variable or event element whose values are words from a fixed list has an
//! enumeration.

use core::ffi::c_int;

use runtime::var::events::{self, EVENTS};
use runtime::var::pvars::{PVARS, PerformanceVariable, PvarNumber};
use runtime::var::{ControlVariable, ROWS, Range};

use crate::args::{InOutArg, OutArg, OutChars};
use crate::error::ErrorClass;
use crate::handle::MPI_T_enum;
use crate::tool::{Result, ToolError, at, number, put, put_text};
use crate::tool_handles::{ToolHandleKind, bits, place};

/// The enumeration of a control variable.
pub fn of_row(row: &ControlVariable) -> MPI_T_enum {
    match row.range {
        Range::Words(_) => MPI_T_enum(bits(ToolHandleKind::Enum, row.variable as usize, 0)),
        _ => MPI_T_enum(0),
    }
}

/// The enumeration of a performance variable. The indices of these enumerations follow those of the control variables.
pub fn of_pvar(pvar: &PerformanceVariable) -> MPI_T_enum {
    let same = |other: &PerformanceVariable| other.name == pvar.name;
    match (pvar.kind, PVARS.iter().position(same)) {
        (PvarNumber::Int([_, ..]), Some(at)) => {
            MPI_T_enum(bits(ToolHandleKind::Enum, ROWS.len() + at, 0))
        }
        _ => MPI_T_enum(0),
    }
}

/// The enumeration of an event element. The indices of these enumerations follow those of the performance variables.
pub fn of_event(row: &events::EventDescription) -> MPI_T_enum {
    match row.words() {
        [] => MPI_T_enum(0),
        _ => {
            let at = ROWS.len() + PVARS.len() + row.event as usize;
            MPI_T_enum(bits(ToolHandleKind::Enum, at, 0))
        }
    }
}

/// Name and items of an enumeration.
fn find(handle: MPI_T_enum) -> Result<(String, &'static [&'static str])> {
    let found = place(ToolHandleKind::Enum, handle.0).filter(|(_, generation)| *generation == 0);
    let words = found.and_then(|(index, _)| match ROWS.get(index) {
        Some(row) => words_of_row(row),
        None => match PVARS.get(index - ROWS.len()) {
            Some(pvar) => words_of_gauge(pvar),
            None => words_of_event(EVENTS.get(index - ROWS.len() - PVARS.len())?),
        },
    });
    let (name, words) = words.ok_or(ToolError(ErrorClass::T_INVALID_HANDLE))?;
    Ok((format!("{name}_values"), words))
}

type Words = (&'static str, &'static [&'static str]);

fn words_of_row(row: &ControlVariable) -> Option<Words> {
    match row.range {
        Range::Words(words) => Some((row.name, words)),
        _ => None,
    }
}

fn words_of_gauge(pvar: &PerformanceVariable) -> Option<Words> {
    match pvar.kind {
        PvarNumber::Int(words @ [_, ..]) => Some((pvar.name, words)),
        _ => None,
    }
}

fn words_of_event(row: &events::EventDescription) -> Option<Words> {
    match row.words() {
        [] => None,
        words => Some((row.name, words)),
    }
}

/// `MPI_T_enum_get_info`.
pub fn get_info(
    enumtype: MPI_T_enum,
    num: Option<OutArg<'_, c_int>>,
    name: Option<OutChars<'_>>,
    name_len: Option<InOutArg<'_, c_int>>,
) -> Result<()> {
    let (text, words) = find(enumtype)?;
    put(num, number(words.len()));
    put_text(name, name_len, &text);
    Ok(())
}

/// `MPI_T_enum_get_item`: the value of an item is its index.
pub fn get_item(
    enumtype: MPI_T_enum,
    index: c_int,
    value: OutArg<'_, c_int>,
    name: Option<OutChars<'_>>,
    name_len: Option<InOutArg<'_, c_int>>,
) -> Result<()> {
    let (_, words) = find(enumtype)?;
    let word = at(words.iter(), index)?;
    value.set(index);
    put_text(name, name_len, word);
    Ok(())
}
