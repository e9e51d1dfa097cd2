// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C type of each parameter kind, and its Rust type in entry points. `runtime/abi/src/args.rs` explains the kinds.

use super::table::{Length, Param, ParamDirection};

/// The two signatures that one row can give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Width {
    /// `MPI_X`.
    Int,
    /// `MPI_X_c`.
    Large,
}

/// A kind whose values are plain scalars: its C type in `MPI_X` and in `MPI_X_c`.
pub(crate) struct Scalar {
    pub(crate) kind: &'static str,
    pub(crate) int: &'static str,
    pub(crate) large: &'static str,
}

const fn one(kind: &'static str, c: &'static str) -> Scalar {
    Scalar {
        kind,
        int: c,
        large: c,
    }
}

const fn two(kind: &'static str, int: &'static str, large: &'static str) -> Scalar {
    Scalar { kind, int, large }
}

const SCALARS: &[Scalar] = &[
    two("Count", "int", "MPI_Count"),
    two("CountLen", "int", "MPI_Count"),
    two("Displ", "int", "MPI_Aint"),
    two("DispUnit", "int", "MPI_Aint"),
    two("AintCount", "MPI_Aint", "MPI_Count"),
    one("LargeCount", "MPI_Count"),
    one("LargeLen", "MPI_Count"),
    one("Len", "int"),
    one("Int", "int"),
    one("Flag", "int"),
    one("Enum", "int"),
    one("Code", "int"),
    one("Keyval", "int"),
    one("Peer", "int"),
    one("Rank", "int"),
    one("Root", "int"),
    one("Tag", "int"),
    one("Level", "const int"),
    one("Weights", "int"),
    one("Aint", "MPI_Aint"),
    one("Offset", "MPI_Offset"),
    one("Double", "double"),
    one("Status", "MPI_Status"),
    one("Comm", "MPI_Comm"),
    one("Group", "MPI_Group"),
    one("Type", "MPI_Datatype"),
    one("Request", "MPI_Request"),
    one("Op", "MPI_Op"),
    one("Errhandler", "MPI_Errhandler"),
    one("Info", "MPI_Info"),
    one("Message", "MPI_Message"),
    one("Win", "MPI_Win"),
    one("File", "MPI_File"),
    one("Session", "MPI_Session"),
    one("TEnum", "MPI_T_enum"),
    one("TCvar", "MPI_T_cvar_handle"),
    one("TPvar", "MPI_T_pvar_handle"),
    one("TSession", "MPI_T_pvar_session"),
    one("TRegistration", "MPI_T_event_registration"),
    one("TInstance", "MPI_T_event_instance"),
    one("TSafety", "MPI_T_cb_safety"),
    one("TOrder", "MPI_T_source_order"),
];

/// Kinds whose C type is always a pointer: kind, direction, C type, Rust type in entry points.
const POINTERS: &[(&str, ParamDirection, &str, &str)] = &[
    ("Buf", ParamDirection::In, "const void *", "*const c_void"),
    ("MutBuf", ParamDirection::In, "void *", "*mut c_void"),
    ("State", ParamDirection::In, "void *", "*mut c_void"),
    ("State", ParamDirection::Out, "void *", "*mut c_void"),
    (
        "String",
        ParamDirection::In,
        "const char *",
        "*const c_char",
    ),
    ("String", ParamDirection::Out, "char *", "*mut c_char"),
    (
        "Chars",
        ParamDirection::In,
        "const char []",
        "*const c_char",
    ),
    ("MainArgc", ParamDirection::In, "int *", "*mut c_int"),
    (
        "MainArgv",
        ParamDirection::In,
        "char ***",
        "*mut *mut *mut c_char",
    ),
    (
        "Strings",
        ParamDirection::In,
        "char * []",
        "*mut *mut c_char",
    ),
    (
        "StringLists",
        ParamDirection::In,
        "char ** []",
        "*mut *mut *mut c_char",
    ),
    ("Bytes", ParamDirection::In, "void *", "*mut c_void"),
    ("Bytes", ParamDirection::Out, "void *", "*mut c_void"),
    ("Range", ParamDirection::In, "int [][3]", "*mut [c_int; 3]"),
    ("Value", ParamDirection::In, "const void *", "*const c_void"),
    ("Value", ParamDirection::Out, "void *", "*mut c_void"),
    ("Object", ParamDirection::In, "void *", "*mut c_void"),
    ("...", ParamDirection::In, "...", "..."),
];

/// The scalar kind of that name.
pub(crate) fn scalar(kind: &str) -> Option<&'static Scalar> {
    SCALARS.iter().find(|scalar| scalar.kind == kind)
}

/// The pointer kind of that name and direction: its C type and its Rust type.
fn pointer(param: &Param) -> Option<(&'static str, &'static str)> {
    let found = POINTERS
        .iter()
        .find(|(kind, direction, ..)| *kind == param.kind && *direction == param.direction);
    found.map(|(_, _, c, rust)| (*c, *rust))
}

/// The callback type of a kind `Fn(TYPE)` or `VarFn(TYPE)`, and whether `MPI_X_c` takes `TYPE_c` instead.
pub(crate) fn callback(kind: &str) -> Option<(&str, bool)> {
    let inner = |prefix: &str| {
        kind.strip_prefix(prefix)
            .and_then(|rest| rest.strip_suffix(')'))
    };
    inner("Fn(")
        .map(|name| (name, false))
        .or_else(|| inner("VarFn(").map(|name| (name, true)))
}

/// Whether `MPI_X` and `MPI_X_c` differ in a parameter of this kind.
pub(crate) fn has_two_widths(kind: &str) -> bool {
    callback(kind).is_some_and(|(_, two)| two) || scalar(kind).is_some_and(|s| s.int != s.large)
}

/// Whether the parameter is only the length of arrays. Bodies do not receive it.
pub(crate) fn is_length(kind: &str) -> bool {
    matches!(kind, "Len" | "CountLen" | "LargeLen")
}

/// An error if there is no such kind in this direction.
pub(crate) fn check(param: &Param) -> Result<(), String> {
    if scalar(&param.kind).is_some() || callback(&param.kind).is_some() || pointer(param).is_some()
    {
        return Ok(());
    }
    Err(format!(
        "`{}` ({:?}) is no kind of parameter",
        param.kind, param.direction
    ))
}

/// A scalar's C type at this width.
pub(crate) fn scalar_c(kind: &str, width: Width) -> Option<&'static str> {
    scalar(kind).map(|s| {
        if width == Width::Large {
            s.large
        } else {
            s.int
        }
    })
}

/// The C type of a parameter, spelt as in `standard/functions.tsv`.
pub(crate) fn c_type(param: &Param, width: Width) -> String {
    if let Some((name, two)) = callback(&param.kind) {
        let suffix = if two && width == Width::Large {
            "_c"
        } else {
            ""
        };
        // The standard declares parameters for MPI_T's event callbacks as functions, all others as pointers to
        // functions.
        let star = if name.starts_with("MPI_T_") { "" } else { " *" };
        return format!("{name}{suffix}{star}");
    }
    if let Some((c, _)) = pointer(param) {
        return c.to_owned();
    }
    let base = scalar_c(&param.kind, width).expect("`check` refused other kinds");
    let array = param.length != Length::One;
    match (param.kind.as_str(), param.direction, array) {
        ("Status", ParamDirection::In, _) => "const MPI_Status *".to_owned(),
        ("Status", ..) => "MPI_Status *".to_owned(),
        (_, ParamDirection::In, false) => base.to_owned(),
        (_, ParamDirection::In, true) => format!("const {base} []"),
        (_, _, false) => format!("{base} *"),
        (_, _, true) => format!("{base} []"),
    }
}

/// The type of a parameter in the signature of an entry point.
pub(crate) fn rust_type(param: &Param, width: Width) -> String {
    if let Some((name, two)) = callback(&param.kind) {
        let suffix = if two && width == Width::Large {
            "_c"
        } else {
            ""
        };
        return format!("Option<{name}{suffix}>");
    }
    if let Some((_, rust)) = pointer(param) {
        return rust.to_owned();
    }
    let base = rust_scalar(scalar_c(&param.kind, width).expect("`check` refused other kinds"));
    let many = param.length != Length::One || param.kind == "Status";
    match (param.direction, many) {
        (ParamDirection::In, false) => base.to_owned(),
        (ParamDirection::In, true) => format!("*const {base}"),
        _ => format!("*mut {base}"),
    }
}

/// A C scalar type in Rust.
pub(crate) fn rust_scalar(c: &str) -> &str {
    match c {
        "int" | "const int" | "MPI_T_cb_safety" | "MPI_T_source_order" => "c_int",
        "double" => "f64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn param(kind: &str, direction: ParamDirection, length: Length) -> Param {
        Param {
            name: "x".into(),
            kind: kind.into(),
            direction,
            length,
            large_only: false,
            optional: false,
        }
    }

    #[test]
    fn count_arrays_have_two_widths() {
        let counts = param("Count", ParamDirection::In, Length::Body);
        assert_eq!(c_type(&counts, Width::Int), "const int []");
        assert_eq!(c_type(&counts, Width::Large), "const MPI_Count []");
        assert_eq!(rust_type(&counts, Width::Large), "*const MPI_Count");
        assert!(has_two_widths("Count") && !has_two_widths("Len"));
    }

    #[test]
    fn callbacks_are_pointers_except_for_tool_events() {
        let user = param("VarFn(MPI_User_function)", ParamDirection::In, Length::One);
        assert_eq!(c_type(&user, Width::Large), "MPI_User_function_c *");
        let event = param(
            "Fn(MPI_T_event_cb_function)",
            ParamDirection::In,
            Length::One,
        );
        assert_eq!(c_type(&event, Width::Int), "MPI_T_event_cb_function");
        assert_eq!(
            rust_type(&event, Width::Int),
            "Option<MPI_T_event_cb_function>"
        );
    }

    #[test]
    fn an_unknown_kind_is_refused() {
        assert!(check(&param("Tagg", ParamDirection::In, Length::One)).is_err());
        assert!(check(&param("Buf", ParamDirection::Out, Length::One)).is_err());
    }
}
