// SPDX-License-Identifier: MIT OR Apache-2.0
//! How Fortran declares each kind of parameter.

use super::super::kinds::{self, Width};
use super::super::table::{Function, Param, ParamDirection};
use super::{Method, is_array, is_handle};

/// Handle kinds: the name in the table and the C type, which is also the derived type's name in `mpi_f08`.
pub(super) const HANDLES: [(&str, &str); 11] = [
    ("Comm", "MPI_Comm"),
    ("Group", "MPI_Group"),
    ("Type", "MPI_Datatype"),
    ("Request", "MPI_Request"),
    ("Op", "MPI_Op"),
    ("Errhandler", "MPI_Errhandler"),
    ("Info", "MPI_Info"),
    ("Message", "MPI_Message"),
    ("Win", "MPI_Win"),
    ("File", "MPI_File"),
    ("Session", "MPI_Session"),
];

/// The part of a declaration before `::`, without the intent.
pub(super) fn declared(param: &Param, width: Width, method: Method) -> String {
    if let Some((callback, two)) = kinds::callback(&param.kind) {
        let suffix = if two && width == Width::Large {
            "_c"
        } else {
            ""
        };
        return match method {
            Method::Mpi => "external".to_owned(),
            Method::F08 => format!("procedure({callback}{suffix})"),
        };
    }
    match (param.kind.as_str(), method) {
        // `target`, so that the compiler does not keep the program's variable in a register while a request uses it.
        ("Buf" | "MutBuf", _) => "type(*), dimension(*), target".to_owned(),
        ("Bytes", _) => "logical".to_owned(),
        ("State", Method::F08) if is_memory(param) => "type(c_ptr)".to_owned(),
        ("State", _) => "integer(kind=MPI_ADDRESS_KIND)".to_owned(),
        ("String" | "Chars", _) => "character(len=*)".to_owned(),
        ("Strings", _) => "character(len=*), dimension(*)".to_owned(),
        ("StringLists", _) => "character(len=*), dimension(count, *)".to_owned(),
        ("Range", _) => "integer, dimension(3, *)".to_owned(),
        ("Status", Method::Mpi) if is_array(param) => {
            "integer, dimension(MPI_STATUS_SIZE, *)".to_owned()
        }
        ("Status", Method::Mpi) => "integer, dimension(MPI_STATUS_SIZE)".to_owned(),
        _ => {
            let base = scalar(&param.kind, width, method);
            let array = if is_array(param) {
                ", dimension(*)"
            } else {
                ""
            };
            format!("{base}{array}")
        }
    }
}

fn scalar(kind: &str, width: Width, method: Method) -> String {
    if method == Method::F08 {
        let handle = HANDLES.iter().find(|(name, _)| *name == kind);
        if let Some((_, name)) = handle {
            return format!("type({name})");
        }
        if kind == "Status" {
            return "type(MPI_Status)".to_owned();
        }
    }
    if is_handle(kind) {
        return "integer".to_owned();
    }
    let fortran = match kinds::scalar_c(kind, width) {
        _ if kind == "Flag" => "logical",
        Some("int" | "const int") => "integer",
        Some("MPI_Aint") => "integer(kind=MPI_ADDRESS_KIND)",
        Some("MPI_Count") => "integer(kind=MPI_COUNT_KIND)",
        Some("MPI_Offset") => "integer(kind=MPI_OFFSET_KIND)",
        Some("double") => "double precision",
        other => unreachable!("{kind} ({other:?}) is no kind that Fortran has"),
    };
    fortran.to_owned()
}

/// The intent that the standard gives. Empty for an output for which a named constant may be passed, and for buffers
/// other than send buffers with `mpi_f08`.
pub(super) fn intent(function: &Function, param: &Param, method: Method) -> &'static str {
    if function.name == "MPI_Cancel" {
        return ", intent(in)";
    }
    let special = matches!(param.kind.as_str(), "Status" | "Weights") || param.optional;
    match (param.kind.as_str(), param.direction, method) {
        // No intent: the call uses only the address, and the memory may be written later.
        ("Buf", ..) if matches!(param.name.as_str(), "location" | "base") => "",
        ("Buf", _, Method::F08) => ", intent(in)",
        ("Buf" | "MutBuf", ..) => "",
        (kind, ..) if kinds::callback(kind).is_some() => "",
        (_, ParamDirection::In, _) => ", intent(in)",
        ("State", ParamDirection::Out, Method::Mpi) => "",
        (_, ParamDirection::Out, Method::F08) if !special => ", intent(out)",
        (_, ParamDirection::InOut, Method::F08) if !special => ", intent(inout)",
        _ => "",
    }
}

/// Whether a `State` is the address of memory that the call returns, not a value that the program chose.
pub(super) fn is_memory(param: &Param) -> bool {
    matches!(param.name.as_str(), "baseptr" | "buffer_addr")
}

/// The name of a parameter in Fortran.
pub(super) fn name<'a>(function: &Function, param: &'a Param) -> &'a str {
    match (function.name.as_str(), param.name.as_str()) {
        (_, "indx") => "index",
        ("MPI_Status_get_error" | "MPI_Status_set_error", "error") => "err",
        ("MPI_Precv_init", "dest") => "source",
        (_, other) => other,
    }
}
