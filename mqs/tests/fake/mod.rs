// SPDX-License-Identifier: MIT OR Apache-2.0
//! A debugger whose processes are byte arrays.
//!
//! # Safety
//! `Opaque` pointers passed to callbacks point to a [`Fake`] that outlives its session.
#![allow(unsafe_code)]
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test may panic"
)]

use core::ffi::{CStr, c_char, c_int, c_void};
use std::cell::Cell;
use std::ptr::null_mut;

use mqs::entry::*;
use mqs::interface::*;
use queue_layout::{
    Anchor, CallTable, Chunk, CommFacts, CommRow, CommTable, FIRST_ROWS, FIRST_TYPE_ROWS, LAYOUT,
    RequestFields, TypeFacts, TypeRow, TypeTable,
};

/// A process: pieces of memory with their addresses.
pub(crate) struct Fake {
    pub(crate) memory: Vec<(u64, Vec<u8>)>,
    pub(crate) symbols: Vec<(&'static str, u64)>,
    pub(crate) pointer_size: i32,
    pub(crate) swapped: bool,
    image_info: *mut c_void,
    process_info: *mut c_void,
    reads: Cell<u64>,
}

/// A communicator and its queues, as a debugger lists them.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) comm: Communicator,
    pub(crate) ranks: Vec<i32>,
    pub(crate) queues: [Vec<PendingOperation>; 3],
    /// Pending operations other than messages: an extension of rmpi.
    pub(crate) others: Vec<PendingOperation>,
    /// Persistent receives that are not started: an extension of rmpi.
    pub(crate) inactive: Vec<PendingOperation>,
}

impl Shown {
    pub(crate) fn name(&self) -> String {
        let end = self.comm.name.iter().position(|byte| *byte == 0).unwrap();
        String::from_utf8_lossy(&self.comm.name[..end]).into_owned()
    }
}

/// The objects that a process's memory is copied from.
pub(crate) struct Model {
    pub(crate) anchor: Box<Anchor>,
    pub(crate) table: Box<CommTable>,
    pub(crate) calls: Box<CallTable>,
    pub(crate) rows: Vec<CommRow>,
    types: &'static TypeTable,
    /// The predefined datatypes, and room for the program's.
    predefined: &'static [TypeRow],
    pub(crate) type_rows: Vec<TypeRow>,
    chunk_table: Vec<u64>,
    pub(crate) chunks: Vec<Box<Chunk>>,
    groups: Vec<Vec<u32>>,
    used: usize,
    slots: usize,
}

impl Model {
    /// Rank 1 of 4, whose only communicator is `MPI_COMM_WORLD`.
    pub(crate) fn new() -> Self {
        let mut model = Self {
            anchor: Box::new(Anchor::new()),
            table: Box::default(),
            calls: Box::default(),
            rows: (0..FIRST_ROWS).map(|_| CommRow::default()).collect(),
            types: Box::leak(Box::default()),
            predefined: &PREDEFINED,
            type_rows: (0..FIRST_TYPE_ROWS).map(|_| TypeRow::default()).collect(),
            chunk_table: vec![0; queue_layout::MAX_CHUNKS],
            chunks: Vec::new(),
            groups: Vec::new(),
            used: 0,
            slots: 0,
        };
        model.table.add_chunk(0, &model.rows);
        model.types.add_chunk(0, &model.type_rows);
        model.anchor.show_types(model.types, model.predefined);
        model
            .comm(4, 1, &[0, 1, 2, 3], None)
            .rename("MPI_COMM_WORLD");
        model
    }

    /// Adds a communicator. A group whose ranks differ from the world ranks gets a table of world ranks.
    pub(crate) fn comm(
        &mut self,
        context: u32,
        rank: u32,
        group: &[u32],
        remote: Option<&[u32]>,
    ) -> &CommRow {
        let mut table = |ranks: &[u32]| {
            let size = ranks.len() as u32;
            if ranks.iter().copied().eq(0..size) {
                return (size, 0);
            }
            self.groups.push(ranks.to_vec());
            (size, self.groups.last().unwrap().as_ptr().addr() as u64)
        };
        let facts = CommFacts {
            context,
            rank,
            group: table(group),
            remote: remote.map(&mut table),
        };
        let row = &self.rows[self.used];
        row.open(&facts);
        self.used += 1;
        row
    }

    /// Adds an operation in the next free slot.
    pub(crate) fn slot(&mut self, change: impl FnOnce(&mut RequestFields)) {
        if self.slots == self.chunks.len() * queue_layout::CHUNK_SLOTS {
            self.chunks.push(Box::default());
            self.chunk_table[self.chunks.len() - 1] =
                core::ptr::from_ref(&**self.chunks.last().unwrap()).addr() as u64;
        }
        let at = self.slots % queue_layout::CHUNK_SLOTS;
        self.slots += 1;
        let number = self.slots as u64;
        self.chunks.last_mut().unwrap().slots[at].change(|fields| {
            (fields.context, fields.sequence) = (4, number);
            change(fields);
        });
    }

    /// Sets the datatype of the operation in the last slot.
    pub(crate) fn datatype(&mut self, handle: u32) {
        let at = (self.slots - 1) % queue_layout::CHUNK_SLOTS;
        self.chunks.last_mut().unwrap().slots[at].record_datatype(handle);
    }

    /// A process with this memory, in which MPI is initialized.
    pub(crate) fn process(&self) -> Fake {
        let tables = (&*self.table, &*self.calls);
        self.anchor
            .open(77, (1, 4), self.chunk_table.as_ptr().cast(), tables);
        self.image()
    }

    /// A process with this memory. Unlike [`process`](Self::process), this does not mark MPI as initialized.
    pub(crate) fn image(&self) -> Fake {
        let mut memory = vec![
            bytes_of(&*self.anchor, 1),
            bytes_of(LAYOUT.as_ptr(), LAYOUT.len()),
            bytes_of(&*self.table, 1),
            bytes_of(&*self.calls, 1),
            bytes_of(self.rows.as_ptr(), self.rows.len()),
            bytes_of(self.chunk_table.as_ptr(), self.chunk_table.len()),
            bytes_of(self.types, 1),
            bytes_of(self.predefined.as_ptr(), self.predefined.len()),
            bytes_of(self.type_rows.as_ptr(), self.type_rows.len()),
        ];
        memory.extend(self.chunks.iter().map(|chunk| bytes_of(&**chunk, 1)));
        memory.extend(
            self.groups
                .iter()
                .map(|group| bytes_of(group.as_ptr(), group.len())),
        );
        Fake::of(memory)
    }
}

fn bytes_of<T>(first: *const T, count: usize) -> (u64, Vec<u8>) {
    let bytes = count * size_of::<T>();
    // SAFETY: `count` objects of the caller's, which have no padding, or padding that was set to zero.
    let copy = unsafe { core::slice::from_raw_parts(first.cast::<u8>(), bytes) }.to_vec();
    (first.addr() as u64, copy)
}

impl Fake {
    /// A process with this memory; its anchor is at the beginning of the first piece.
    pub(crate) fn of(memory: Vec<(u64, Vec<u8>)>) -> Self {
        Self {
            symbols: vec![("rmpi_debug_anchor", memory[0].0)],
            memory,
            pointer_size: 8,
            swapped: false,
            image_info: null_mut(),
            process_info: null_mut(),
            reads: Cell::new(0),
        }
    }

    /// The infos that the library has attached: of the image and of the process.
    pub(crate) fn infos(&self) -> (*mut c_void, *mut c_void) {
        (self.image_info, self.process_info)
    }

    /// Number of reads of the process's memory.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// Attaches the library to the process. Returns the results of `setup_image`, `image_has_queues` and
    /// `setup_process`; then, if all three are [`OK`], that of `process_has_queues`; and the message, if any.
    pub(crate) fn attach(&mut self) -> (Vec<c_int>, Option<String>) {
        self.attach_with(&BASIC, &IMAGE, &PROCESS)
    }

    /// [`attach`](Self::attach) with the given tables of callbacks.
    pub(crate) fn attach_with(
        &mut self,
        basic: &'static BasicCallbacks,
        image: &'static ImageCallbacks,
        process: &'static ProcessCallbacks,
    ) -> (Vec<c_int>, Option<String>) {
        let it: *mut Opaque = core::ptr::from_mut(self).cast();
        let mut message = core::ptr::null();
        let mut answers = Vec::new();
        // SAFETY: the callbacks are made for this `Fake`.
        unsafe { mqs_setup_basic_callbacks(basic) };
        // SAFETY: as above.
        answers.push(unsafe { mqs_setup_image(it, image) });
        // SAFETY: as above, and room for a pointer.
        answers.push(unsafe { mqs_image_has_queues(it, &raw mut message) });
        // SAFETY: as above.
        answers.push(unsafe { mqs_setup_process(it, process) });
        if answers == [OK, OK, OK] {
            // SAFETY: as above, and room for a pointer.
            answers.push(unsafe { mqs_process_has_queues(it, &raw mut message) });
        }
        // SAFETY: NULL, or a string that stays.
        let text = (!message.is_null()).then(|| unsafe { CStr::from_ptr(message) });
        (
            answers,
            text.map(|text| text.to_string_lossy().into_owned()),
        )
    }

    /// Detaches the library, and checks that all memory was freed.
    pub(crate) fn detach(&mut self) {
        self.release();
        assert_eq!(ALLOCATED.get(), 0, "memory that was not freed");
    }

    /// Detaches the library from this process, while other processes stay attached.
    pub(crate) fn release(&mut self) {
        // SAFETY: the info that the library attached, destroyed once.
        unsafe { mqs_destroy_process_info(core::mem::replace(&mut self.process_info, null_mut())) };
        // SAFETY: as above.
        unsafe { mqs_destroy_image_info(core::mem::replace(&mut self.image_info, null_mut())) };
    }

    pub(crate) fn opaque(&mut self) -> *mut Opaque {
        core::ptr::from_mut(self).cast()
    }

    /// All communicators with their queues, or the error code.
    pub(crate) fn list(&mut self) -> Result<Vec<Shown>, c_int> {
        let it = self.opaque();
        let mut all = Vec::new();
        // SAFETY: an attached process, here and below.
        check(unsafe { mqs_update_communicator_list(it) })?;
        // SAFETY: as above.
        let mut answer = unsafe { mqs_setup_communicator_iterator(it) };
        while answer == OK {
            assert!(all.len() < 2_000_000, "no end of communicators");
            all.push(self.communicator()?);
            // SAFETY: as above.
            answer = unsafe { mqs_next_communicator(it) };
        }
        match answer {
            END_OF_LIST => Ok(all),
            other => Err(other),
        }
    }

    fn communicator(&mut self) -> Result<Shown, c_int> {
        let it = self.opaque();
        let mut comm = Communicator {
            unique_id: 0,
            local_rank: 0,
            size: 0,
            name: [0; 64],
        };
        // SAFETY: an attached process, and room for the answer, here and below.
        check(unsafe { mqs_get_communicator(it, &raw mut comm) })?;
        let mut ranks = vec![-7; comm.size as usize + 1];
        // SAFETY: as above.
        check(unsafe { mqs_get_comm_group(it, ranks.as_mut_ptr()) })?;
        assert_eq!(ranks.pop(), Some(-7), "more ranks than the size");
        let mut queues = [const { Vec::new() }; 3];
        let (mut others, mut inactive) = (Vec::new(), Vec::new());
        let ours = [
            (OTHER_OPERATIONS, &mut others),
            (INACTIVE_RECEIVES, &mut inactive),
        ];
        for (class, queue) in (0..).zip(&mut queues).chain(ours) {
            // SAFETY: as above.
            check(unsafe { mqs_setup_operation_iterator(it, class) })?;
            loop {
                let mut operation = core::mem::MaybeUninit::<PendingOperation>::zeroed();
                // SAFETY: as above.
                match unsafe { mqs_next_operation(it, operation.as_mut_ptr()) } {
                    // SAFETY: numbers and bytes, zero or filled in.
                    OK => queue.push(unsafe { operation.assume_init() }),
                    END_OF_LIST => break,
                    other => return Err(other),
                }
            }
        }
        Ok(Shown {
            comm,
            ranks,
            queues,
            others,
            inactive,
        })
    }
}

fn check(answer: c_int) -> Result<(), c_int> {
    if answer == OK { Ok(()) } else { Err(answer) }
}

/// Handles of the predefined datatypes that every model has, of 4 and 8 bytes.
pub(crate) const INT: u32 = 0x211;
pub(crate) const DOUBLE: u32 = 0x222;

static PREDEFINED: [TypeRow; 2] = [
    predefined(DOUBLE, 8, "MPI_DOUBLE"),
    predefined(INT, 4, "MPI_INT"),
];

const fn predefined(handle: u32, bytes: u64, name: &str) -> TypeRow {
    TypeRow::predefined(&TypeFacts {
        handle,
        committed: true,
        bytes,
        extent: bytes.cast_signed(),
        name,
    })
}

thread_local! {
    static ALLOCATED: Cell<i64> = const { Cell::new(0) };
    /// Number of further allocations that succeed; the one after these fails.
    pub(crate) static PATIENCE: Cell<i64> = const { Cell::new(i64::MAX) };
}

unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    PATIENCE.set(PATIENCE.get() - 1);
    if PATIENCE.get() < 0 {
        return null_mut();
    }
    ALLOCATED.set(ALLOCATED.get() + 1);
    // SAFETY: any size.
    unsafe { libc::malloc(bytes) }
}

unsafe extern "C" fn free(place: *mut c_void) {
    ALLOCATED.set(ALLOCATED.get() - 1);
    // SAFETY: from `malloc`, freed once: that is what is tested.
    unsafe { libc::free(place) };
}

fn fake<'a>(it: *mut Opaque) -> &'a mut Fake {
    // SAFETY: the callbacks get no other pointers.
    unsafe { &mut *it.cast::<Fake>() }
}

unsafe extern "C" fn put_image_info(it: *mut Opaque, info: *mut c_void) {
    fake(it).image_info = info;
}

unsafe extern "C" fn get_image_info(it: *mut Opaque) -> *mut c_void {
    fake(it).image_info
}

unsafe extern "C" fn put_process_info(it: *mut Opaque, info: *mut c_void) {
    fake(it).process_info = info;
}

unsafe extern "C" fn get_process_info(it: *mut Opaque) -> *mut c_void {
    fake(it).process_info
}

unsafe extern "C" fn get_type_sizes(it: *mut Opaque, sizes: *mut TypeSizes) {
    // Like some debuggers, writes seven fields: two after the five of the interface.
    let seven = [2, 4, 8, 8, fake(it).pointer_size, 1, 8];
    // SAFETY: room for at least seven.
    unsafe { sizes.cast::<[c_int; 7]>().write(seven) };
}

unsafe extern "C" fn find_symbol(
    it: *mut Opaque,
    name: *mut c_char,
    address: *mut Address,
) -> c_int {
    // SAFETY: a string of the library's.
    let name = unsafe { CStr::from_ptr(name) };
    assert!(
        name.to_bytes().len() < 128,
        "some debuggers have no more room"
    );
    let known = fake(it)
        .symbols
        .iter()
        .find(|(known, _)| *known == name.to_str().unwrap());
    let Some((_, found)) = known else {
        return NO_INFORMATION;
    };
    // SAFETY: room for the address.
    unsafe { address.write(*found) };
    OK
}

unsafe extern "C" fn get_image(it: *mut Opaque) -> *mut Opaque {
    it
}

unsafe extern "C" fn fetch_data(
    it: *mut Opaque,
    address: Address,
    bytes: c_int,
    into: *mut c_void,
) -> c_int {
    let fake = fake(it);
    fake.reads.set(fake.reads.get() + 1);
    assert!((1..=4096).contains(&bytes), "a read of {bytes} bytes");
    for (start, piece) in &fake.memory {
        let Some(offset) = address.checked_sub(*start) else {
            continue;
        };
        let found = usize::try_from(offset)
            .ok()
            .and_then(|at| piece.get(at..at.checked_add(bytes as usize)?));
        if let Some(found) = found {
            // SAFETY: as many bytes as were requested.
            unsafe {
                into.cast::<u8>()
                    .copy_from_nonoverlapping(found.as_ptr(), found.len())
            };
            return OK;
        }
    }
    NO_INFORMATION
}

unsafe extern "C" fn target_to_host(
    it: *mut Opaque,
    from: *const c_void,
    to: *mut c_void,
    bytes: c_int,
) {
    let count = bytes as usize;
    // SAFETY: that many bytes.
    let mut number = unsafe { core::slice::from_raw_parts(from.cast::<u8>(), count) }.to_vec();
    if fake(it).swapped {
        number.reverse();
    }
    // SAFETY: room for as many.
    unsafe {
        to.cast::<u8>()
            .copy_from_nonoverlapping(number.as_ptr(), count)
    };
}

/// The minimal debugger: no printing, no debug information.
pub(crate) static BASIC: BasicCallbacks = BasicCallbacks {
    malloc: Some(malloc),
    free: Some(free),
    dprints: None,
    errorstring: None,
    put_image_info: Some(put_image_info),
    get_image_info: Some(get_image_info),
    put_process_info: Some(put_process_info),
    get_process_info: Some(get_process_info),
};

pub(crate) fn image_callbacks() -> &'static ImageCallbacks {
    &IMAGE
}

pub(crate) static IMAGE: ImageCallbacks = ImageCallbacks {
    get_type_sizes: Some(get_type_sizes),
    find_function: None,
    find_symbol: Some(find_symbol),
    find_type: None,
    field_offset: None,
    sizeof: None,
};

pub(crate) static PROCESS: ProcessCallbacks = ProcessCallbacks {
    get_global_rank: None,
    get_image: Some(get_image),
    fetch_data: Some(fetch_data),
    target_to_host: Some(target_to_host),
};
