// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions that a debugger calls.
//!
//! # Safety
//! Obligations of the debugger, for every function here: **D1** tables of callbacks stay unchanged while any object of
//! this library is in use, and their functions behave as the interface specifies; **D2** each image or process that it
//! passes is one of its own; **D3** the info attached to an image or process was made by this library, and is used by
//! one thread at a time; **D4** other pointers are NULL or point to memory of the size that the interface specifies.
#![allow(unsafe_code, reason = "the debugger's side of the interface is C")]
#![allow(clippy::missing_safety_doc, reason = "D1 to D4 above hold for all")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::image::{ANCHOR_SYMBOL, AnchorFields, Map, MqsError, StoppedProcess};
use crate::interface::{
    ADDRESS_BYTES, BasicCallbacks, Communicator, END_OF_LIST, FIRST_USER_CODE, INACTIVE_RECEIVES,
    INTERFACE_COMPATIBILITY, INVALID_PROCESS, ImageCallbacks, NO_INFORMATION, OK, OTHER_OPERATIONS,
    Opaque, PENDING_SENDS, PendingOperation, ProcessCallbacks, TypeSizes, UNEXPECTED_MESSAGES,
};
use crate::list::{Allocator, GrowableList};
use crate::{calls, order, show, types, walk};

/// The debugger's table of basic callbacks. As in the interface, there is one for the whole debugger.
static BASIC: AtomicPtr<BasicCallbacks> = AtomicPtr::new(null_mut());

/// The info attached to an image.
struct Image {
    callbacks: *const ImageCallbacks,
}

/// The info attached to a process: its anchor, and the lists of the last update.
struct AttachedProcess {
    callbacks: *const ProcessCallbacks,
    image_callbacks: *const ImageCallbacks,
    image: *mut Opaque,
    anchor: Option<AnchorFields>,
    map: Map,
    /// Whether an update of the lists was attempted.
    listed: bool,
    comms: GrowableList<walk::TargetCommunicator>,
    /// Sorted by [`walk::TargetOperation::key`].
    operations: GrowableList<walk::TargetOperation>,
    calls: GrowableList<calls::TargetCall>,
    /// The datatypes that operations refer to, sorted by handle.
    types: GrowableList<types::TargetDatatype>,
    /// Position of the communicator iterator.
    current_index: usize,
    /// World ranks of the peers in the communicator at `current_index`, loaded on first use.
    ranks: GrowableList<u32>,
    /// Range of `operations` that the operation iterator has not returned yet: from `next` to before `end`.
    next: usize,
    end: usize,
}

/// `mqs_setup_basic_callbacks`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_setup_basic_callbacks(callbacks: *const BasicCallbacks) {
    // PAIR(basic-callbacks): `basic` loads with Acquire.
    BASIC.store(callbacks.cast_mut(), Ordering::Release);
}

/// `mqs_version_string`.
#[unsafe(no_mangle)]
pub extern "C" fn mqs_version_string() -> *const c_char {
    const VERSION: &str = concat!("rmpi ", env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// `mqs_version_compatibility`.
#[unsafe(no_mangle)]
pub extern "C" fn mqs_version_compatibility() -> c_int {
    INTERFACE_COMPATIBILITY
}

/// `mqs_dll_taddr_width`.
#[unsafe(no_mangle)]
pub extern "C" fn mqs_dll_taddr_width() -> c_int {
    ADDRESS_BYTES
}

/// `mqs_dll_error_string`.
#[unsafe(no_mangle)]
pub extern "C" fn mqs_dll_error_string(code: c_int) -> *const c_char {
    let text = match code {
        OK => c"no error",
        NO_INFORMATION => c"no information",
        END_OF_LIST => c"end of list",
        _ => MqsError::message(code).unwrap_or(c"an error code that rmpi does not have"),
    };
    text.as_ptr()
}

/// `mqs_setup_image`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_setup_image(
    image: *mut Opaque,
    callbacks: *const ImageCallbacks,
) -> c_int {
    code((|| {
        let basic = basic()?;
        let put = basic.put_image_info.ok_or(MqsError::NoCallback)?;
        let info = allocator()?.store(Image { callbacks })?;
        // SAFETY: the debugger's function (D1) for its image (D2).
        unsafe { put(image, info.cast()) };
        Ok(OK)
    })())
}

/// `mqs_image_has_queues`. There is no message for an image without queues, since most programs do not use MPI.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_image_has_queues(
    image: *mut Opaque,
    message: *mut *const c_char,
) -> c_int {
    // SAFETY: NULL, or room for a pointer: D4.
    unsafe { put_message(message, None) };
    code((|| {
        // SAFETY: an image of the debugger's: D2.
        let callbacks = unsafe { image_callbacks(image) }?;
        // SAFETY: set up with a table of the debugger's: D1.
        let callbacks = unsafe { callbacks.as_ref() }.ok_or(MqsError::NotSetUp)?;
        let suppressed = SUPPRESSIONS.iter().try_fold(false, |found, name| {
            Ok(found || find(callbacks, image, name)?.is_some())
        })?;
        let there = find(callbacks, image, ANCHOR_SYMBOL)?.is_some();
        Ok(if there && !suppressed {
            OK
        } else {
            NO_INFORMATION
        })
    })())
}

/// `mqs_destroy_image_info`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_destroy_image_info(info: *mut c_void) -> c_int {
    code((|| {
        if !info.is_null() {
            // SAFETY: made by `mqs_setup_image`, and not used any more: D3.
            unsafe { allocator()?.release(info.cast::<Image>()) };
        }
        Ok(OK)
    })())
}

/// `mqs_setup_process`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_setup_process(
    process: *mut Opaque,
    callbacks: *const ProcessCallbacks,
) -> c_int {
    code((|| {
        let basic = basic()?;
        let put = basic.put_process_info.ok_or(MqsError::NoCallback)?;
        // SAFETY: NULL, or a table that stays: D1.
        let table = unsafe { callbacks.as_ref() }.ok_or(MqsError::NoCallback)?;
        let get_image = table.get_image.ok_or(MqsError::NoCallback)?;
        // SAFETY: the debugger's function (D1) for its process (D2).
        let image = unsafe { get_image(process) };
        // SAFETY: an image of the debugger's: D2.
        let image_callbacks = unsafe { image_callbacks(image) }?;
        // SAFETY: set up with a table of the debugger's: D1.
        let sizes = unsafe { image_callbacks.as_ref() }.ok_or(MqsError::NotSetUp)?;
        let get_sizes = sizes.get_type_sizes.ok_or(MqsError::NoCallback)?;
        let mut sizes = TypeSizes::default();
        // SAFETY: the debugger's function (D1) for its process (D2), with more room than it fills.
        unsafe { get_sizes(process, &raw mut sizes) };
        if sizes.pointer_size != 8 {
            return Err(MqsError::Width);
        }
        let info = allocator()?.store(AttachedProcess {
            callbacks,
            image_callbacks,
            image,
            anchor: None,
            map: Map::default(),
            listed: false,
            comms: GrowableList::new(),
            operations: GrowableList::new(),
            calls: GrowableList::new(),
            types: GrowableList::new(),
            current_index: 0,
            ranks: GrowableList::new(),
            next: 0,
            end: 0,
        })?;
        // SAFETY: the debugger's function (D1) for its process (D2).
        unsafe { put(process, info.cast()) };
        Ok(OK)
    })())
}

/// `mqs_process_has_queues`: `mqs_ok` as soon as there is an anchor of a known version, even before `MPI_Init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_process_has_queues(
    process: *mut Opaque,
    message: *mut *const c_char,
) -> c_int {
    // SAFETY: a process of the debugger's: D2.
    let answer = unsafe { with_process(process, |info, target| info.read_anchor(target)) };
    let silent = answer == OK || answer == NO_INFORMATION;
    let text = MqsError::message(answer).filter(|_| !silent);
    // SAFETY: NULL, or room for a pointer: D4.
    unsafe { put_message(message, text) };
    answer
}

/// `mqs_destroy_process_info`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_destroy_process_info(info: *mut c_void) -> c_int {
    code((|| {
        let place: *mut AttachedProcess = info.cast();
        let allocator = allocator()?;
        // SAFETY: NULL, or made by `mqs_setup_process` and used only by this call: D3.
        if let Some(process) = unsafe { place.as_mut() } {
            process.clear(allocator);
            // SAFETY: from this allocator, and not used any more: D3.
            unsafe { allocator.release(place) };
        }
        Ok(OK)
    })())
}

/// `mqs_update_communicator_list`: reads communicators, operations and calls. Until the next update, the iterators
/// return what this call has read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_update_communicator_list(process: *mut Opaque) -> c_int {
    // SAFETY: a process of the debugger's: D2.
    unsafe { with_process(process, |info, target| info.update(target)) }
}

/// `mqs_setup_communicator_iterator`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_setup_communicator_iterator(process: *mut Opaque) -> c_int {
    // SAFETY: a process of the debugger's: D2.
    unsafe {
        with_process(process, |info, target| {
            if !info.listed {
                info.update(target)?;
            }
            info.select_communicator(0)
        })
    }
}

/// `mqs_get_communicator`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_get_communicator(
    process: *mut Opaque,
    communicator: *mut Communicator,
) -> c_int {
    // SAFETY: a process of the debugger's: D2.
    unsafe {
        with_process(process, |info, _| {
            let it = info.current()?;
            let shown = Communicator {
                unique_id: it.unique_id,
                local_rank: it.rank.into(),
                size: it.size.into(),
                name: it.name,
            };
            put(communicator, shown)
        })
    }
}

/// `mqs_get_comm_group`: writes the peers' world ranks; their number is the communicator's `size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_get_comm_group(process: *mut Opaque, ranks: *mut c_int) -> c_int {
    // SAFETY: a process of the debugger's: D2.
    unsafe {
        with_process(process, |info, target| {
            info.load_ranks(target)?;
            let mut place = ranks;
            for rank in info.ranks.as_slice() {
                put(place, rank.cast_signed())?;
                place = place.wrapping_add(1);
            }
            Ok(OK)
        })
    }
}

/// `mqs_next_communicator`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_next_communicator(process: *mut Opaque) -> c_int {
    // SAFETY: a process of the debugger's: D2.
    unsafe {
        with_process(process, |info, _| {
            info.select_communicator(info.current_index.saturating_add(1))
        })
    }
}

/// `mqs_setup_operation_iterator`. The three queues of the interface hold messages only, as in other MPI libraries. Two
/// more queues, [`OTHER_OPERATIONS`] and [`INACTIVE_RECEIVES`], are for debuggers that support rmpi's extensions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_setup_operation_iterator(process: *mut Opaque, class: c_int) -> c_int {
    // SAFETY: a process of the debugger's: D2.
    unsafe {
        with_process(process, |info, target| {
            let is_standard = (PENDING_SENDS..=UNEXPECTED_MESSAGES).contains(&class);
            if !is_standard && ![OTHER_OPERATIONS, INACTIVE_RECEIVES].contains(&class) {
                return Ok(NO_INFORMATION);
            }
            info.load_ranks(target)?;
            let context = info.current()?.context;
            let all = info.operations.as_slice();
            let queue = (context, class);
            let place = |it: &walk::TargetOperation| (it.context, it.class);
            info.next = all.partition_point(|it| place(it) < queue);
            info.end = all.partition_point(|it| place(it) <= queue);
            Ok(OK)
        })
    }
}

/// `mqs_next_operation`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_next_operation(
    process: *mut Opaque,
    operation: *mut PendingOperation,
) -> c_int {
    // SAFETY: a process of the debugger's: D2.
    unsafe {
        with_process(process, |info, _| {
            let left = info.operations.as_slice().get(info.next..info.end);
            let Some(it) = left.and_then(<[_]>::first) else {
                return Ok(END_OF_LIST);
            };
            let calls = info.calls.as_slice();
            let call = it.call.and_then(|number| calls.get(number as usize));
            let datatype = types::of(info.types.as_slice(), it.datatype);
            let shown = show::pending_operation(it, info.ranks.as_slice(), datatype, call);
            info.next = info.next.saturating_add(1);
            put(operation, shown)
        })
    }
}

/// `mqs_get_global_rank`, an extension that some debuggers look up to learn the rank. It stays available after
/// `MPI_Finalize`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_get_global_rank(process: *mut Opaque) -> c_int {
    let mut rank = INVALID_PROCESS;
    // SAFETY: a process of the debugger's: D2.
    let _ = unsafe {
        with_process(process, |info, target| {
            let status = info.read_anchor(target)?;
            if let Some(anchor) = info.anchor.filter(|anchor| anchor.began) {
                rank = anchor.world_rank.cast_signed();
            }
            Ok(status)
        })
    };
    rank
}

/// `mqs_get_comm_coll_state`, an extension that some debuggers look up: for a collective on the current communicator,
/// the number of calls started, and how many of these are in progress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_get_comm_coll_state(
    process: *mut Opaque,
    collective: c_int,
    sequence: *mut c_int,
    active: *mut c_int,
) -> c_int {
    // SAFETY: a process of the debugger's: D2.
    unsafe {
        with_process(process, |info, target| {
            let communicator = info.current()?;
            let number = collective.cast_unsigned();
            match walk::collective(target, &info.map, communicator, number)? {
                None => Ok(NO_INFORMATION),
                Some((called, under_way)) => {
                    put(sequence, called.cast_signed())?;
                    put(active, under_way.cast_signed())
                }
            }
        })
    }
}

impl AttachedProcess {
    /// Looks the anchor's symbol up, and reads the anchor and, while MPI is running, the layout table.
    fn read_anchor(&mut self, target: &CallbackProcess<'_>) -> Result<c_int, MqsError> {
        self.anchor = None;
        // SAFETY: set up with a table of the debugger's: D1.
        let callbacks = unsafe { self.image_callbacks.as_ref() }.ok_or(MqsError::NotSetUp)?;
        let Some(address) = find(callbacks, self.image, ANCHOR_SYMBOL)? else {
            return Ok(NO_INFORMATION);
        };
        let anchor = AnchorFields::read(target, address)?;
        if anchor.running {
            self.map = Map::read(target, &anchor)?;
        }
        self.anchor = Some(anchor);
        Ok(OK)
    }

    fn update(&mut self, target: &CallbackProcess<'_>) -> Result<c_int, MqsError> {
        let allocator = allocator()?;
        self.clear(allocator);
        self.listed = true;
        let status = self.read_anchor(target)?;
        let Some(anchor) = self.anchor.filter(|anchor| anchor.running) else {
            return Ok(status);
        };
        let (comms, operations) = (&mut self.comms, &mut self.operations);
        walk::operations(target, &anchor, &self.map, |it| {
            operations.push(allocator, it)
        })?;
        order::sort_by_key(operations.as_mut_slice(), walk::TargetOperation::key);
        walk::communicators(target, &anchor, &self.map, |it| {
            let all = operations.as_slice();
            let first = all.partition_point(|one| one.context < it.context);
            let mut its = all.get(first..).unwrap_or_default().iter();
            let is_used = its
                .by_ref()
                .take_while(|one| one.context == it.context)
                .any(|one| one.class != INACTIVE_RECEIVES);
            // A freed communicator is listed only while it has pending operations.
            match it.is_freed && !is_used {
                true => Ok(()),
                false => comms.push(allocator, it),
            }
        })?;
        let of = (&anchor, &self.map);
        types::find(
            target,
            allocator,
            of,
            operations.as_slice(),
            &mut self.types,
        )?;
        let calls = &mut self.calls;
        calls::calls(target, &anchor, &self.map, |it| calls.push(allocator, it))?;
        calls::mark_awaited(
            target,
            allocator,
            calls.as_mut_slice(),
            comms.as_slice(),
            operations,
        )?;
        order::sort_by_key(operations.as_mut_slice(), walk::TargetOperation::key);
        Ok(status)
    }

    /// Frees the lists of the last update and resets the iterators.
    fn clear(&mut self, allocator: Allocator) {
        self.comms.clear(allocator);
        self.operations.clear(allocator);
        self.calls.clear(allocator);
        self.types.clear(allocator);
        self.ranks.clear(allocator);
        (self.current_index, self.next, self.end) = (0, 0, 0);
    }

    fn select_communicator(&mut self, index: usize) -> Result<c_int, MqsError> {
        self.current_index = index;
        self.ranks.clear(allocator()?);
        (self.next, self.end) = (0, 0);
        let there = index < self.comms.as_slice().len();
        Ok(if there { OK } else { END_OF_LIST })
    }

    fn current(&self) -> Result<&walk::TargetCommunicator, MqsError> {
        let current = self.comms.as_slice().get(self.current_index);
        current.ok_or(MqsError::NotSetUp)
    }

    /// Reads the world ranks of the current communicator, unless they are loaded.
    fn load_ranks(&mut self, target: &CallbackProcess<'_>) -> Result<(), MqsError> {
        let current = *self.current()?;
        if self.ranks.as_slice().len() == current.size as usize {
            return Ok(());
        }
        let allocator = allocator()?;
        self.ranks.clear(allocator);
        let ranks = &mut self.ranks;
        walk::group(target, &current, |rank| ranks.push(allocator, rank))
    }
}

/// A stopped process, read through the debugger's callbacks.
struct CallbackProcess<'a> {
    process: *mut Opaque,
    callbacks: &'a ProcessCallbacks,
}

impl StoppedProcess for CallbackProcess<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MqsError> {
        let fetch = self.callbacks.fetch_data.ok_or(MqsError::NoCallback)?;
        let bytes = c_int::try_from(into.len()).map_err(|_| MqsError::Layout)?;
        // SAFETY: the debugger's function (D1) for its process (D2); it fills `bytes` bytes.
        let answer = unsafe { fetch(self.process, address, bytes, into.as_mut_ptr().cast()) };
        match answer {
            OK => Ok(()),
            _ => Err(MqsError::Unreadable),
        }
    }

    fn number(&self, bytes: &[u8]) -> u64 {
        let Some(convert) = self.callbacks.target_to_host else {
            return 0;
        };
        let mut out = [0; 8];
        let size = match bytes.len() {
            1 => 1,
            2 => 2,
            4 => 4,
            8 => 8,
            _ => return 0,
        };
        // SAFETY: the debugger's function (D1) for its process (D2); both sides have `size` bytes.
        unsafe {
            convert(
                self.process,
                bytes.as_ptr().cast(),
                out.as_mut_ptr().cast(),
                size,
            );
        }
        let [a, b, c, d, ..] = out;
        match size {
            1 => a.into(),
            2 => u16::from_ne_bytes([a, b]).into(),
            4 => u32::from_ne_bytes([a, b, c, d]).into(),
            _ => u64::from_ne_bytes(out),
        }
    }
}

/// Runs `query` with the info attached to a process.
///
/// # Safety
/// D2 and D3.
unsafe fn with_process(
    process: *mut Opaque,
    query: impl FnOnce(&mut AttachedProcess, &CallbackProcess<'_>) -> Result<c_int, MqsError>,
) -> c_int {
    code((|| {
        let get = basic()?.get_process_info.ok_or(MqsError::NoCallback)?;
        // SAFETY: the debugger's function (D1) for its process (D2).
        let info: *mut AttachedProcess = unsafe { get(process) }.cast();
        // SAFETY: NULL, or the info that `mqs_setup_process` attached, used only by this call: D3.
        let info = unsafe { info.as_mut() }.ok_or(MqsError::NotSetUp)?;
        // SAFETY: set up with a table of the debugger's, which stays unchanged: D1.
        let callbacks = unsafe { info.callbacks.as_ref() }.ok_or(MqsError::NotSetUp)?;
        query(info, &CallbackProcess { process, callbacks })
    })())
}

fn basic() -> Result<&'static BasicCallbacks, MqsError> {
    // PAIR(basic-callbacks): `mqs_setup_basic_callbacks` stores with Release.
    let table = BASIC.load(Ordering::Acquire);
    // SAFETY: NULL, or a table that stays unchanged: D1.
    unsafe { table.as_ref() }.ok_or(MqsError::NoCallback)
}

fn allocator() -> Result<Allocator, MqsError> {
    // SAFETY: the debugger's allocator: D1.
    unsafe { Allocator::of(basic()?) }
}

/// The table of callbacks that an image was set up with.
///
/// # Safety
/// D2 and D3.
unsafe fn image_callbacks(image: *mut Opaque) -> Result<*const ImageCallbacks, MqsError> {
    let get = basic()?.get_image_info.ok_or(MqsError::NoCallback)?;
    // SAFETY: the debugger's function (D1) for its image (D2).
    let info: *const Image = unsafe { get(image) }.cast();
    // SAFETY: NULL, or the info that `mqs_setup_image` attached: D3.
    let info = unsafe { info.as_ref() }.ok_or(MqsError::NotSetUp)?;
    Ok(info.callbacks)
}

/// The address of a symbol; `None` if the image does not have it.
fn find(
    callbacks: &ImageCallbacks,
    image: *mut Opaque,
    name: &CStr,
) -> Result<Option<u64>, MqsError> {
    let find = callbacks.find_symbol.ok_or(MqsError::NoCallback)?;
    let mut address = 0;
    // SAFETY: the debugger's function (D1) for its image (D2); it reads the name and fills the address.
    let answer = unsafe { find(image, name.as_ptr().cast_mut(), &raw mut address) };
    Ok((answer == OK).then_some(address))
}

/// Stores a result at the debugger's pointer.
fn put<T>(place: *mut T, value: T) -> Result<c_int, MqsError> {
    if place.is_null() {
        return Err(MqsError::NotSetUp);
    }
    // SAFETY: not NULL, so there is room for a `T`: D4.
    unsafe { place.write(value) };
    Ok(OK)
}

/// Stores the message that a debugger prints. The debugger uses it as a format string; the messages of this library
/// contain no `%`.
///
/// # Safety
/// D4.
unsafe fn put_message(message: *mut *const c_char, text: Option<&'static CStr>) {
    let text = text.map_or(core::ptr::null(), CStr::as_ptr);
    // The pointer may be NULL; then the message is dropped.
    let _ = put(message, text);
}

fn code(answer: Result<c_int, MqsError>) -> c_int {
    answer.unwrap_or_else(MqsError::code)
}

/// A program with one of these symbols uses MPI only internally; its queues are not shown (as in MPICH's interface).
const SUPPRESSIONS: [&CStr; 2] = [c"MPIR_Ignore_queues", c"MPIR_ignore_queues"];

const _: () = assert!(FIRST_USER_CODE > END_OF_LIST);
