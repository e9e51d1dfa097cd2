// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts the C parameters of an entry point into the arguments of its body, the Rust function that implements it: at
//! most one statement per parameter.
//!
//! The types named here, and the rules A1 to A4 that the SAFETY comments cite, are those of `runtime/abi/src/args.rs`.

use super::kinds::{self, Width};
use super::table::{Function, Length, Param, ParamDirection};

/// What an entry point does with one parameter.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Conversion {
    /// A statement before the body is called.
    pub(crate) before: Option<String>,
    /// The argument that the body receives; `None` for a length of arrays, because the body receives the arrays as
    /// slices.
    pub(crate) argument: Option<String>,
}

impl Conversion {
    fn plain(argument: impl Into<String>) -> Self {
        Self {
            before: None,
            argument: Some(argument.into()),
        }
    }

    /// `let NAME = unsafe { ... };` under a SAFETY comment with `proof`; with a `?` if `fails`.
    fn proven(param: &Param, rule: &str, proof: &str, call: &str, fails: bool) -> Self {
        let name = ident(&param.name);
        let mark = if fails { "?" } else { "" };
        let before = format!(
            "// SAFETY: {proof} ({rule} of `args`).\nlet {name} = unsafe {{ {call} }}{mark};"
        );
        Self {
            before: Some(before),
            argument: Some(name),
        }
    }
}

/// A parameter's name as a Rust identifier.
pub(crate) fn ident(name: &str) -> String {
    match name {
        "type" | "fn" | "ref" | "in" | "use" | "match" | "move" => format!("r#{name}"),
        _ => name.to_owned(),
    }
}

/// What the entry point of `function` at `width` does with `param`.
pub(crate) fn convert(function: &Function, param: &Param, width: Width) -> Conversion {
    let converted = present(function, param, width);
    if !param.large_only || kinds::is_length(&param.kind) {
        return converted;
    }
    // A parameter that only MPI_X_c has: the body serves MPI_X too and receives an Option.
    match (width, converted) {
        (Width::Int, _) => Conversion::plain("None"),
        (Width::Large, Conversion { before, argument }) => Conversion {
            before,
            argument: argument.map(|a| format!("Some({a})")),
        },
    }
}

fn present(function: &Function, param: &Param, width: Width) -> Conversion {
    let name = ident(&param.name);
    if let Some((_, two)) = kinds::callback(&param.kind) {
        return Conversion::plain(match (two, width) {
            (false, _) => name,
            (true, Width::Int) => format!("args::EitherFn::Int({name})"),
            (true, Width::Large) => format!("args::EitherFn::Large({name})"),
        });
    }
    match (param.kind.as_str(), param.direction) {
        ("Buf", _) => Conversion::plain(format!("args::ConstBuf({name})")),
        ("MutBuf", _) => Conversion::plain(format!("args::MutBuf({name})")),
        ("State", ParamDirection::In) => Conversion::plain(format!("args::ExtraState({name})")),
        ("MainArgc" | "MainArgv", _) => Conversion::plain(format!("args::{}({name})", param.kind)),
        ("State", _) => one(
            param,
            "pointer",
            &format!(
                "args::OutArg::new({:?}, {name}.cast::<args::ExtraState>())",
                param.name
            ),
        ),
        ("Strings" | "StringLists", _) => later(param, &param.kind),
        ("String" | "Chars", ParamDirection::In) => text(param),
        ("String", _) => text_out(param),
        ("Status", _) => status(function, param),
        ("Weights", ParamDirection::In) => later(param, "GraphWeights"),
        ("Weights", _) => later(param, "OutWeights"),
        ("Value", ParamDirection::In) => later(param, "InValue"),
        ("Value", _) => later(param, "OutValue"),
        ("Object", _) => later(param, "ToolObject"),
        ("Bytes", ParamDirection::In) => bytes(function, param, "slice"),
        ("Bytes", _) => bytes(function, param, "OutArray::new"),
        ("Range", _) => array(function, param, width, "slice", "ranges"),
        (kind, _) if kinds::is_length(kind) => length(param),
        _ => scalar(function, param, width),
    }
}

/// `Len`, `CountLen`, `LargeLen`: the entry point checks the length; the body receives only the arrays.
fn length(param: &Param) -> Conversion {
    let name = ident(&param.name);
    let class = if param.name.ends_with("count") {
        "COUNT"
    } else {
        "ARG"
    };
    let before = format!(
        "let {name} = args::len({:?}, args::wide({name}), ErrorClass::{class})?;",
        param.name
    );
    Conversion {
        before: Some(before),
        argument: None,
    }
}

/// A pointer to one value.
fn one(param: &Param, what: &str, call: &str) -> Conversion {
    let proof = format!("`{}` is the caller's pointer to one {what}", param.name);
    if param.optional {
        let call = call.replace("::new(", "::optional(");
        let call = call.replace(&format!("{:?}, ", param.name), "");
        return Conversion::proven(param, "A1", &proof, &call, false);
    }
    Conversion::proven(param, "A1", &proof, call, true)
}

/// An array whose length only the body can determine.
fn later(param: &Param, constructor: &str) -> Conversion {
    let name = ident(&param.name);
    let proof = format!(
        "`{}` is the caller's array, of the length the standard gives",
        param.name
    );
    let call = format!("args::{constructor}::new({:?}, {name})", param.name);
    if param.optional {
        let call = format!("args::{constructor}::optional({:?}, {name})", param.name);
        return Conversion::proven(param, "A3", &proof, &call, false);
    }
    Conversion::proven(param, "A3", &proof, &call, false)
}

/// An array whose length another parameter holds.
fn array(function: &Function, param: &Param, width: Width, path: &str, what: &str) -> Conversion {
    let _ = width;
    let Length::Named(length) = &param.length else {
        unreachable!("{}: `{}` has no length", function.name, param.name)
    };
    let name = ident(&param.name);
    let length = ident(length);
    let proof = format!(
        "`{}` is the caller's array of `{length}` {what}",
        param.name
    );
    let call = format!("args::{path}({:?}, {name}, {length})", param.name);
    Conversion::proven(param, "A2", &proof, &call, true)
}

/// A C object given as `void *`, with a size in bytes.
fn bytes(function: &Function, param: &Param, path: &str) -> Conversion {
    let mut converted = array(function, param, Width::Int, path, "bytes");
    let name = ident(&param.name);
    let cast =
        |line: String| line.replace(&format!(", {name}, "), &format!(", {name}.cast::<u8>(), "));
    converted.before = converted.before.map(cast);
    converted
}

fn text(param: &Param) -> Conversion {
    let name = ident(&param.name);
    let proof = format!("`{}` is the caller's string", param.name);
    Conversion::proven(
        param,
        "A4",
        &proof,
        &format!("args::text({:?}, {name})", param.name),
        true,
    )
}

fn text_out(param: &Param) -> Conversion {
    let name = ident(&param.name);
    let constructor = if param.optional { "optional" } else { "new" };
    match &param.length {
        Length::Named(capacity) => {
            let proof = format!("`{}` has room for {capacity} characters", param.name);
            let call = format!(
                "args::OutString::new({:?}, {name}, c::{capacity})",
                param.name
            );
            Conversion::proven(param, "A4", &proof, &call, true)
        }
        _ => {
            let proof = format!("`{}` is the caller's room for a string", param.name);
            let label = if param.optional {
                String::new()
            } else {
                format!("{:?}, ", param.name)
            };
            let call = format!("args::OutChars::{constructor}({label}{name})");
            Conversion::proven(param, "A4", &proof, &call, !param.optional)
        }
    }
}

fn status(function: &Function, param: &Param) -> Conversion {
    let name = ident(&param.name);
    let what = "MPI_Status";
    match (param.direction, &param.length) {
        (ParamDirection::In, _) => one(
            param,
            what,
            &format!("args::status({:?}, {name})", param.name),
        ),
        (ParamDirection::InOut, _) => one(
            param,
            what,
            &format!("args::StatusMut::new({:?}, {name})", param.name),
        ),
        (ParamDirection::Out, Length::Named(_)) => {
            let mut converted = array(
                function,
                param,
                Width::Int,
                "OutStatuses::new",
                "MPI_Status",
            );
            converted.before = converted.before.map(|text| {
                text.replace(&format!("{:?}, ", param.name), "")
                    .replace("}?;", "};")
            });
            converted
        }
        (ParamDirection::Out, _) => {
            let proof = format!("`{}` is the caller's pointer to one {what}", param.name);
            let call = format!("args::OutStatus::new({name})");
            Conversion::proven(param, "A1", &proof, &call, false)
        }
    }
}

/// A parameter of a scalar kind: a value, a pointer to one, or an array.
fn scalar(function: &Function, param: &Param, width: Width) -> Conversion {
    let name = ident(&param.name);
    let two = kinds::has_two_widths(&param.kind);
    let c = kinds::scalar_c(&param.kind, width).unwrap_or("int");
    let flavour = match c {
        "MPI_Count" => "count",
        "MPI_Aint" => "aint",
        _ => "int",
    };
    let label = &param.name;
    match (&param.length, param.direction, two) {
        (Length::One, ParamDirection::In, true) => Conversion::plain(format!("args::wide({name})")),
        (Length::One, ParamDirection::In, false) => Conversion::plain(name),
        (Length::One, ParamDirection::Out, true) => one(
            param,
            c,
            &format!("args::OutCount::{flavour}({label:?}, {name})"),
        ),
        (Length::One, ParamDirection::InOut, true) => one(
            param,
            c,
            &format!("args::InOutCount::{flavour}({label:?}, {name})"),
        ),
        (Length::One, ParamDirection::Out, false) => {
            one(param, c, &format!("args::OutArg::new({label:?}, {name})"))
        }
        (Length::One, ParamDirection::InOut, false) => {
            one(param, c, &format!("args::InOutArg::new({label:?}, {name})"))
        }
        (Length::Body, ParamDirection::In, true) => counts_later(param, flavour),
        (Length::Body, ParamDirection::In, false) => later(param, "Array"),
        (Length::Body, ..) => later(param, "OutArrayPtr"),
        (Length::Named(_), ParamDirection::In, true) => array(
            function,
            param,
            width,
            &format!("CountArray::{flavour}"),
            &plural(c),
        ),
        (Length::Named(_), ParamDirection::In, false) => {
            array(function, param, width, "slice", &plural(c))
        }
        (Length::Named(_), ParamDirection::InOut, _) => {
            array(function, param, width, "slice_mut", &plural(c))
        }
        (Length::Named(_), ParamDirection::Out, _) => {
            array(function, param, width, "OutArray::new", &plural(c))
        }
    }
}

fn counts_later(param: &Param, flavour: &str) -> Conversion {
    let mut converted = later(param, "CountsPtr");
    converted.before = converted
        .before
        .map(|text| text.replace("CountsPtr::new", &format!("CountsPtr::{flavour}")));
    converted
}

fn plural(c: &str) -> String {
    if c == "int" {
        "ints".to_owned()
    } else {
        format!("{c} values")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::table::Api;

    fn conversions(params: &str, width: Width) -> Vec<Conversion> {
        let api = Api::parse(&format!("== a  A\nMPI_X  3  {params}  a::b\n")).unwrap();
        let function = api.functions().next().unwrap();
        function
            .params
            .iter()
            .map(|p| convert(function, p, width))
            .collect()
    }

    #[test]
    fn a_count_is_widened_and_a_length_stays_in_its_array() {
        let made = conversions("Count count, Len n, Int[n] ranks", Width::Int);
        assert_eq!(made[0], Conversion::plain("args::wide(count)"));
        assert_eq!(made[1].argument, None);
        assert!(made[1].before.as_ref().unwrap().contains("ErrorClass::ARG"));
        assert!(
            made[2]
                .before
                .as_ref()
                .unwrap()
                .contains("args::slice(\"ranks\", ranks, n)")
        );
    }

    #[test]
    fn parameters_of_the_large_form_alone_are_options() {
        let row = "Count count, large out LargeCount more";
        assert_eq!(conversions(row, Width::Int)[1], Conversion::plain("None"));
        assert_eq!(
            conversions(row, Width::Large)[1].argument.as_deref(),
            Some("Some(more)")
        );
    }

    #[test]
    fn every_unsafe_line_has_its_proof() {
        let row = "out Flag flag, out Count count, out Status status, Count[*] counts, String key, opt out Int num";
        for made in conversions(row, Width::Large) {
            let before = made.before.unwrap();
            assert!(before.starts_with("// SAFETY: "), "{before}");
        }
    }
}
