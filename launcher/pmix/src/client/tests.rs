// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a client against a simulated library that returns arbitrary results within the rules of C: strings are
//! terminated, and pointers are null or valid.
//!
//! # Safety
//! - Only the client calls the simulated functions, in the thread of its test, with the arguments that the standard
//!   specifies.
//! - Each value is a separate allocation until it is freed, and its string stays valid until then.

use super::*;
use crate::types::{BOOL, Data};
use core::ffi::c_int;
use proptest::prelude::*;
use std::cell::RefCell;

/// Contents of a value.
#[derive(Debug, Clone)]
enum Content {
    Numbers([u64; 3]),
    /// A C string; `None` is a null pointer.
    Text(Option<Vec<u8>>),
}

/// Result of `PMIx_Get`.
#[derive(Debug, Clone)]
struct Answer {
    status: Status,
    /// `None`: a null pointer.
    value: Option<(u16, Content)>,
}

/// When the callback of a fence is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Callback {
    Never,
    Within,
    Twice,
    FromAThread,
}

/// State of the simulated library, per thread.
#[derive(Default)]
struct Library {
    begin: Status,
    me: Option<Proc>,
    answers: Vec<Answer>,
    calls: usize,
    fence: (Status, Status, Option<Callback>),
    error_text: Option<&'static CStr>,
    /// Values that the client has not freed, each with its string.
    given: Vec<(usize, Option<CString>)>,
}

thread_local! {
    static LIBRARY: RefCell<Library> = RefCell::default();
}

fn library<T>(act: impl FnOnce(&mut Library) -> T) -> T {
    LIBRARY.with_borrow_mut(act)
}

unsafe extern "C" fn init(me: *mut Proc, _info: *mut Info, _count: usize) -> Status {
    library(|library| {
        if let Some(given) = library.me {
            // SAFETY: the client's memory for one process.
            unsafe { me.write(given) };
        }
        library.begin
    })
}

unsafe extern "C" fn finalize(_info: *const Info, _count: usize) -> Status {
    library(|library| library.begin)
}

unsafe extern "C" fn get(
    of: *const Proc,
    key: *const c_char,
    info: *const Info,
    count: usize,
    found: *mut *mut PmixValue,
) -> Status {
    // SAFETY: the client's process.
    let of = unsafe { of.read() };
    let ends = of.namespace.contains(&0);
    // SAFETY: the client's string.
    let key = unsafe { CStr::from_ptr(key) };
    assert!(ends && !key.is_empty() && count == 1);
    // SAFETY: the client's directive.
    assert_eq!(unsafe { info.read() }.value.kind, BOOL);
    library(|library| {
        let Some(answer) = library.answers.get(library.calls).cloned() else {
            return NOT_FOUND;
        };
        library.calls += 1;
        if answer.status != SUCCESS {
            // SAFETY: `found` is the client's memory for a pointer. The pointer written is invalid, and the client must
            // not dereference it.
            unsafe { found.write(ptr::without_provenance_mut(8)) };
            return answer.status;
        }
        if let Some((kind, content)) = answer.value {
            let (data, text) = content.made();
            let value = Box::into_raw(Box::new(PmixValue { kind, data }));
            library.given.push((value.expose_provenance(), text));
            // SAFETY: the client's memory for a pointer.
            unsafe { found.write(value) };
        }
        answer.status
    })
}

impl Content {
    fn made(self) -> (Data, Option<CString>) {
        match self {
            Self::Numbers(numbers) => (Data::of(numbers), None),
            Self::Text(None) => (Data::of([0; 3]), None),
            Self::Text(Some(bytes)) => {
                let text = CString::new(bytes).expect("it has no zero byte");
                let string = text.as_ptr().cast_mut();
                (PmixValue::of_string(string).data, Some(text))
            }
        }
    }
}

/// Frees a value. If the value was not allocated by this library, it panics, which aborts the test because the panic
/// would cross a C function.
unsafe extern "C" fn free_value(value: *mut PmixValue, count: usize) {
    assert_eq!(count, 1);
    library(|library| {
        let mut given = library.given.iter();
        let at = given.position(|(address, _)| *address == value.addr());
        library.given.swap_remove(at.expect("it was given once"));
    });
    // SAFETY: a box that `get` has made, and that was not freed before.
    drop(unsafe { Box::from_raw(value) });
}

unsafe extern "C" fn put(_scope: u8, key: *const c_char, value: *mut PmixValue) -> Status {
    // SAFETY: the client's value.
    let value = unsafe { value.read() };
    assert_eq!(value.kind, STRING);
    // SAFETY: the value's type is `STRING`, so this field of the union is set.
    let text = unsafe { value.data.string };
    // SAFETY: the client's two strings.
    let (key, text) = unsafe { both(key, text) };
    assert!(!key.is_empty() && text.count_bytes() < 1 << 20);
    library(|library| library.begin)
}

/// Two C strings.
unsafe fn both<'a>(one: *const c_char, other: *const c_char) -> (&'a CStr, &'a CStr) {
    // SAFETY: the caller's contract.
    let one = unsafe { CStr::from_ptr(one) };
    // SAFETY: as above.
    (one, unsafe { CStr::from_ptr(other) })
}

unsafe extern "C" fn commit() -> Status {
    SUCCESS
}

unsafe extern "C" fn fence(
    _of: *const Proc,
    _count: usize,
    _info: *const Info,
    _infos: usize,
    done: crate::types::OpDone,
    state: *mut c_void,
) -> Status {
    let (status, outcome, callback) = library(|library| library.fence);
    let times = match callback {
        Some(Callback::Within) => 1,
        Some(Callback::Twice) => 2,
        _ => 0,
    };
    for _ in 0..times {
        // SAFETY: the client's callback with its own argument.
        unsafe { done(outcome, state) };
    }
    if callback == Some(Callback::FromAThread) {
        let state = state.expose_provenance();
        let call = move || {
            // SAFETY: as above.
            unsafe { done(outcome, ptr::with_exposed_provenance_mut(state)) };
        };
        std::thread::spawn(call).join().unwrap();
    }
    status
}

unsafe extern "C" fn abort(
    _code: c_int,
    message: *const c_char,
    _of: *mut Proc,
    _count: usize,
) -> Status {
    assert!(!message.is_null());
    library(|library| library.begin)
}

unsafe extern "C" fn error_string(_status: Status) -> *const c_char {
    let error_text = library(|library| library.error_text);
    error_text.map_or(ptr::null(), CStr::as_ptr)
}

const FUNCTIONS: Functions = Functions {
    init,
    finalize,
    get,
    put,
    commit,
    fence,
    abort,
    error_string,
    free_value: Some(free_value),
    version: None,
};

fn named(name: &[u8], rank: u32) -> Proc {
    let mut proc = Proc::none();
    proc.rank = rank;
    for (place, byte) in proc.namespace.iter_mut().zip(name) {
        *place = byte.cast_signed();
    }
    proc
}

fn number(kind: u16, number: u64) -> Answer {
    Answer {
        status: SUCCESS,
        value: Some((kind, Content::Numbers([number, u64::MAX, 7]))),
    }
}

fn text(bytes: Option<&[u8]>) -> Answer {
    Answer {
        status: SUCCESS,
        value: Some((STRING, Content::Text(bytes.map(<[u8]>::to_vec)))),
    }
}

/// A client of a library with these results.
fn begin(me: Proc, answers: Vec<Answer>) -> Result<Client, Error> {
    library(|library| {
        *library = Library {
            me: Some(me),
            answers,
            ..Library::default()
        };
    });
    Client::begin_with(FUNCTIONS)
}

fn all_was_given_back() -> bool {
    library(|library| library.given.is_empty())
}

#[test]
fn numbers_of_accepted_pmix_types_are_read_and_others_rejected() {
    for (answer, size) in [
        (number(UINT32, 0xffff_ffff_0000_0003), Ok(3)),
        (number(RANK, 4), Ok(4)),
        (number(UINT16, 0xffff_0005), Ok(5)),
        (number(INT, 6), Ok(6)),
        (number(INT, u64::from(u32::MAX)), Err(())),
        (number(BOOL, 1), Err(())),
        (number(u16::MAX, 1), Err(())),
        (text(Some(b"7")), Err(())),
        (text(None), Err(())),
    ] {
        let shown = format!("{answer:?}");
        let client = begin(named(b"job", 2), vec![answer, number(UINT32, 9)]);
        match (client, size) {
            (Ok(client), Ok(size)) => assert_eq!((client.size(), client.app()), (size, 9)),
            (Err(Error::Missing(_)), Err(())) => (),
            (other, _) => panic!("{shown}: {other:?}"),
        }
        assert!(all_was_given_back());
    }
}

#[test]
fn an_unterminated_namespace_is_an_error() {
    for name in [&[b'x'; 256][..], b""] {
        let error = begin(named(name, 0), vec![number(UINT32, 1)]).unwrap_err();
        let expected = "the launcher does not provide what the job is called";
        assert_eq!(error.to_string(), expected);
    }
    let longest = begin(named(&[b'x'; 255], 0), vec![number(UINT32, 1)]).unwrap();
    assert_eq!(longest.job().len(), 255);
}

#[test]
fn strings_are_read_whole_or_rejected() {
    let long = vec![b'x'; MOST_TEXT_BYTES];
    for (answer, read) in [
        (text(Some(b"1.here")), Some("1.here".to_owned())),
        (text(Some(b"")), Some(String::new())),
        (text(Some(b"\xff")), Some("\u{fffd}".to_owned())),
        (text(None), None),
        (text(Some(&long)), None),
        (number(UINT32, 1), None),
        (
            Answer {
                status: SUCCESS,
                value: None,
            },
            None,
        ),
    ] {
        let answers = vec![number(UINT32, 1), number(UINT32, 0), answer];
        let mut client = begin(named(b"job", 0), answers).unwrap();
        assert_eq!(client.get(0, "key"), Ok(read));
        assert!(all_was_given_back());
    }
}

#[test]
fn a_fence_completes_on_its_first_callback() {
    for (status, outcome, callback, over) in [
        (SUCCESS, SUCCESS, Callback::Never, Ok(false)),
        (SUCCESS, SUCCESS, Callback::Within, Ok(true)),
        (SUCCESS, SUCCESS, Callback::Twice, Ok(true)),
        (SUCCESS, SUCCESS, Callback::FromAThread, Ok(true)),
        (SUCCESS, -25, Callback::Within, Err(())),
        (OPERATION_SUCCEEDED, SUCCESS, Callback::Never, Ok(true)),
        (OPERATION_SUCCEEDED, SUCCESS, Callback::Within, Ok(true)),
    ] {
        let mut client = begin(named(b"job", 0), vec![number(UINT32, 1)]).unwrap();
        library(|library| library.fence = (status, outcome, Some(callback)));
        client.begin_fence().unwrap();
        let found = client.is_fence_over().map_err(|_| ());
        assert_eq!(found, over, "{status} {outcome} {callback:?}");
    }
    // SAFETY: `done` accepts a null state.
    unsafe { done(SUCCESS, ptr::null_mut()) };
}

#[test]
fn errors_include_the_text_of_the_pmix_library() {
    for (error_text, printed) in [
        (Some(c"UNREACHABLE"), "UNREACHABLE (-25)"),
        (Some(c"\xff"), "\u{fffd} (-25)"),
        (None, "no reason given (-25)"),
    ] {
        let mut client = begin(named(b"job", 0), vec![number(UINT32, 1)]).unwrap();
        library(|library| (library.error_text, library.begin) = (error_text, -25));
        let error = client.put("key", "value").unwrap_err();
        assert_eq!(error.to_string(), format!("PMIx_Put failed: {printed}"));
    }
}

fn contents() -> impl Strategy<Value = (u16, Content)> {
    let known = vec![BOOL, STRING, INT, UINT16, UINT32, RANK, 0, 4, 12, 15, 27];
    let kinds = prop_oneof![proptest::sample::select(known), any::<u16>()];
    let texts = prop_oneof![
        proptest::collection::vec(1_u8.., 0..300),
        Just(vec![b'x'; MOST_TEXT_BYTES - 1]),
        Just(vec![b'x'; MOST_TEXT_BYTES + 5]),
    ];
    let numbers = (kinds, any::<[u64; 3]>()).prop_map(|(kind, numbers)| match kind {
        // A number other than 0 would be an invalid pointer.
        STRING => (kind, Content::Text(None)),
        kind => (kind, Content::Numbers(numbers)),
    });
    prop_oneof![
        numbers,
        proptest::option::of(texts).prop_map(|text| (STRING, Content::Text(text))),
    ]
}

fn statuses() -> impl Strategy<Value = Status> {
    prop_oneof![4 => Just(SUCCESS), 1 => Just(NOT_FOUND), 1 => Just(OPERATION_SUCCEEDED), 1 => any::<Status>()]
}

fn answers() -> impl Strategy<Value = Vec<Answer>> {
    let one = (statuses(), proptest::option::of(contents()));
    proptest::collection::vec(
        one.prop_map(|(status, value)| Answer { status, value }),
        0..8,
    )
}

proptest! {
    /// Whatever the library returns, the client succeeds or reports an error, and frees all values.
    #[test]
    fn arbitrary_pmix_replies_never_crash_the_client(
        name in proptest::collection::vec(any::<u8>(), 0..300), rank: u32, answers in answers(),
        begin_status in statuses(), fence in (statuses(), statuses()),
        callback in proptest::sample::select(vec![Callback::Never, Callback::Within, Callback::Twice, Callback::FromAThread]),
        key in "\\PC{1,600}", value in "\\PC*", has_text: bool, later in statuses(),
    ) {
        library(|library| *library = Library {
            begin: begin_status,
            me: Some(named(&name, rank)),
            // In half of the cases the first reply is the number of processes, since a client without it does not
            // start.
            answers: if rank % 2 == 0 { [vec![number(UINT32, u64::from(rank))], answers].concat() } else { answers },
            fence: (fence.0, fence.1, Some(callback)),
            error_text: has_text.then_some(c"words"),
            ..Library::default()
        });
        if let Ok(mut client) = Client::begin_with(FUNCTIONS) {
            prop_assert!(!client.job().is_empty() && client.rank() == rank);
            library(|library| library.begin = later);
            let _ = client.put(&key, &value);
            for of in [rank, 0, u32::MAX] {
                if let Ok(Some(text)) = client.get(of, &key) {
                    prop_assert!(text.len() < 3 * MOST_TEXT_BYTES);
                }
            }
            let has_begun = client.begin_fence().is_ok();
            prop_assert_eq!(has_begun, [SUCCESS, OPERATION_SUCCEEDED].contains(&fence.0));
            let _ = client.is_fence_over();
            let _ = client.abort(1, &value);
            let _ = client.finalize();
        }
        prop_assert!(all_was_given_back());
    }
}
