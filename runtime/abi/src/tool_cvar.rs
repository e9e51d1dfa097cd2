// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI 5.0 section 15.3.6: control variables. Each is a row of [`runtime::var::ROWS`] and has the name of its
//! environment variable.
//!
//! No control variable is bound to an object. Until MPI is initialized, a tool may write control variables; after that
//! only those whose scope is [`Scope::Any`]. Reading a control variable takes a lock and, before initialization, reads
//! the environment, so it is not async-signal-safe.

use core::ffi::{CStr, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

use runtime::var::settings::{self, CvarRefusal, CvarValue, control, controls, text_bytes};
use runtime::var::{ControlVariable, Range, Scope};

use crate::args::{InOutArg, InValue, OutArg, OutChars, OutValue, ToolObject};
use crate::c;
use crate::error::ErrorClass;
use crate::handle::{MPI_Datatype, MPI_T_cvar_handle, MPI_T_enum};
use crate::tool::{Result, ToolError, at, number, put, put_text, verbosity};
use crate::tool_handles::{ToolHandleKind, ToolHandles};
use crate::{lock, state, tool_enum, tool_event};

/// The variables of allocated handles.
static HANDLES: Mutex<ToolHandles<&'static ControlVariable>> =
    Mutex::new(ToolHandles::new(ToolHandleKind::Cvar));

fn handles() -> MutexGuard<'static, ToolHandles<&'static ControlVariable>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frees all handles when the interface is finalized.
pub fn forget_handles() {
    handles().clear();
}

/// `MPI_T_cvar_get_num`.
pub fn get_num(num: OutArg<'_, c_int>) -> Result<()> {
    num.set(number(controls().count()));
    Ok(())
}

/// `MPI_T_cvar_get_info`.
pub fn get_info(
    index: c_int,
    name: Option<OutChars<'_>>,
    name_len: Option<InOutArg<'_, c_int>>,
    verbose: Option<OutArg<'_, c_int>>,
    datatype: Option<OutArg<'_, MPI_Datatype>>,
    enumtype: Option<OutArg<'_, MPI_T_enum>>,
    desc: Option<OutChars<'_>>,
    desc_len: Option<InOutArg<'_, c_int>>,
    bind: Option<OutArg<'_, c_int>>,
    scope: Option<OutArg<'_, c_int>>,
) -> Result<()> {
    let row = at(controls(), index)?;
    put_text(name, name_len, row.name);
    put(verbose, verbosity(row.verbosity));
    put(datatype, type_of(row));
    put(enumtype, tool_enum::of_row(row));
    put_text(desc, desc_len, &describe(row));
    put(bind, c::MPI_T_BIND_NO_OBJECT);
    put(scope, scope_of(row));
    Ok(())
}

/// The description of a variable: meaning, values, and when it can be set.
fn describe(row: &ControlVariable) -> String {
    format!(
        "{} Expected: {}. {}",
        row.text,
        row.range.describe(),
        row.scope.text()
    )
}

fn type_of(row: &ControlVariable) -> MPI_Datatype {
    match row.range {
        Range::Number { .. } => MPI_Datatype::UNSIGNED_LONG_LONG,
        Range::Words(_) => MPI_Datatype::INT,
        Range::Names { .. } | Range::List(_) | Range::Text(_) | Range::Foreign => {
            MPI_Datatype::CHAR
        }
    }
}

fn scope_of(row: &ControlVariable) -> c_int {
    match row.scope {
        Scope::ReadOnly => c::MPI_T_SCOPE_READONLY,
        Scope::Local | Scope::Any => c::MPI_T_SCOPE_LOCAL,
        Scope::AllEqual => c::MPI_T_SCOPE_ALL_EQ,
    }
}

/// `MPI_T_cvar_get_index`.
pub fn get_index(name: &CStr, index: OutArg<'_, c_int>) -> Result<()> {
    let found = controls().position(|row| row.name.as_bytes() == name.to_bytes());
    index.set(number(found.ok_or(ToolError(ErrorClass::T_INVALID_NAME))?));
    Ok(())
}

/// `MPI_T_cvar_handle_alloc`.
pub fn handle_alloc(
    index: c_int,
    _obj_handle: ToolObject<'_>,
    handle: OutArg<'_, MPI_T_cvar_handle>,
    count: OutArg<'_, c_int>,
) -> Result<()> {
    let index = usize::try_from(index).map_err(|_| ToolError(ErrorClass::T_INVALID_INDEX))?;
    let row = control(index).ok_or(ToolError(ErrorClass::T_INVALID_INDEX))?;
    let number_of = handles().insert(row);
    handle.set(MPI_T_cvar_handle(
        number_of.ok_or(ToolError(ErrorClass::T_OUT_OF_HANDLES))?,
    ));
    count.set(number(text_bytes(row).unwrap_or(1)));
    Ok(())
}

/// `MPI_T_cvar_handle_free`.
pub fn handle_free(handle: InOutArg<'_, MPI_T_cvar_handle>) -> Result<()> {
    let freed = handles().remove(handle.get().0);
    freed.ok_or(ToolError(ErrorClass::T_INVALID_HANDLE))?;
    handle.set(MPI_T_cvar_handle(0));
    Ok(())
}

fn find(handle: MPI_T_cvar_handle) -> Result<&'static ControlVariable> {
    let found = handles().get(handle.0).copied();
    found.ok_or(ToolError(ErrorClass::T_INVALID_HANDLE))
}

/// `MPI_T_cvar_read`.
pub fn read(handle: MPI_T_cvar_handle, buf: OutValue<'_>) -> Result<()> {
    match settings::read(find(handle)?) {
        CvarValue::Number(number) => buf.set(&number.to_ne_bytes())?,
        CvarValue::Word(word) => buf.set(&number(word).to_ne_bytes())?,
        CvarValue::Text(mut text) => {
            text.push('\0');
            buf.set(text.as_bytes())?;
        }
    }
    Ok(())
}

/// `MPI_T_cvar_write`.
pub fn write(handle: MPI_T_cvar_handle, buf: InValue<'_>) -> Result<()> {
    let row = find(handle)?;
    let value = given(row, buf)?.ok_or(ToolError(ErrorClass::T_INVALID))?;
    settings::write(row, &value).map_err(|refusal| {
        ToolError(match refusal {
            CvarRefusal::NotNow => ErrorClass::T_CVAR_SET_NOT_NOW,
            CvarRefusal::Never => ErrorClass::T_CVAR_SET_NEVER,
            CvarRefusal::Invalid => ErrorClass::T_INVALID,
        })
    })?;
    if row.scope == Scope::Any && (lock::is_multiple() || tool_event::is_only_thread()) {
        // If this thread may call MPI and is not visiting the state already, it applies the new settings now. Otherwise
        // the next progress of a thread in MPI applies them.
        let _ = state::peek(|state| state.universe.renew_settings());
    }
    Ok(())
}

/// Decodes a value that the tool passed; `None` if it is invalid for the variable.
fn given(row: &ControlVariable, buf: InValue<'_>) -> Result<Option<CvarValue>> {
    if let Some(most) = text_bytes(row) {
        let text = buf
            .text(most)?
            .and_then(|text| String::from_utf8(text).ok());
        return Ok(text.map(CvarValue::Text));
    }
    if let Range::Words(_) = row.range {
        let word = c_int::from_ne_bytes(buf.bytes()?);
        return Ok(usize::try_from(word).ok().map(CvarValue::Word));
    }
    Ok(Some(CvarValue::Number(u64::from_ne_bytes(buf.bytes()?))))
}
