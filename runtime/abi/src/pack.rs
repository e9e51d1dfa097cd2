// SPDX-License-Identifier: MIT OR Apache-2.0
//! `MPI_Pack`, `MPI_Unpack` and the external32 forms (MPI 5.0 sections 5.2 and 5.3).

use core::ffi::CStr;

use runtime::{Payload, UserMemory};

use crate::args::{ConstBuf, InOutCount, MutBuf, OutCount};
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Comm, MPI_Datatype};
use crate::pt2pt::{Pt2ptCall, bad_count, lend, payload};

/// `MPI_Pack`.
pub fn pack(
    mpi: Mpi,
    inbuf: ConstBuf,
    incount: i64,
    datatype: MPI_Datatype,
    outbuf: MutBuf,
    outsize: i64,
    position: InOutCount<'_>,
    comm: MPI_Comm,
) -> Result<()> {
    crate::comm::of(mpi, comm)?;
    let data = data(mpi, inbuf.into(), incount, datatype)?;
    let packed = Packed::new(outbuf, outsize, position)?;
    let mut room = packed.next(data.bytes())?;
    match data {
        Payload::Dense(memory) => room.as_mut_slice().copy_from_slice(memory.as_slice()),
        Payload::Structured(data) => data.pack_at(0, room.as_mut_slice()),
    }
    packed.advance(room.bytes())
}

/// `MPI_Unpack`.
pub fn unpack(
    mpi: Mpi,
    inbuf: ConstBuf,
    insize: i64,
    position: InOutCount<'_>,
    outbuf: MutBuf,
    outcount: i64,
    datatype: MPI_Datatype,
    comm: MPI_Comm,
) -> Result<()> {
    crate::comm::of(mpi, comm)?;
    let data = data(mpi, outbuf, outcount, datatype)?;
    let packed = Packed::new(inbuf.into(), insize, position)?;
    let bytes = packed.next(data.bytes())?;
    put(data, bytes.as_slice());
    packed.advance(bytes.bytes())
}

/// `MPI_Pack_size`: exactly the bytes of the data, since [`pack`] adds nothing.
pub fn pack_size(
    mpi: Mpi,
    incount: i64,
    datatype: MPI_Datatype,
    comm: MPI_Comm,
    size: OutCount<'_>,
) -> Result<()> {
    crate::comm::of(mpi, comm)?;
    let each = crate::datatype::of(mpi, datatype)?.size;
    size.set(times(incount, each)?)
}

/// `MPI_Pack_external`.
pub fn pack_external(
    mpi: Mpi,
    datarep: &CStr,
    inbuf: ConstBuf,
    incount: i64,
    datatype: MPI_Datatype,
    outbuf: MutBuf,
    outsize: i64,
    position: InOutCount<'_>,
) -> Result<()> {
    is_external32(datarep)?;
    let data = data(mpi, inbuf.into(), incount, datatype)?;
    let known = crate::datatype::of(mpi, datatype)?;
    let bytes = times(incount, known.signature.external)?.unsigned_abs();
    let packed = Packed::new(outbuf, outsize, position)?;
    let mut room = packed.next(bytes)?;
    let external = known.signature.encode(incount.unsigned_abs(), &data.copy());
    room.as_mut_slice().copy_from_slice(&external);
    packed.advance(room.bytes())
}

/// `MPI_Unpack_external`.
pub fn unpack_external(
    mpi: Mpi,
    datarep: &CStr,
    inbuf: ConstBuf,
    insize: i64,
    position: InOutCount<'_>,
    outbuf: MutBuf,
    outcount: i64,
    datatype: MPI_Datatype,
) -> Result<()> {
    is_external32(datarep)?;
    let data = data(mpi, outbuf, outcount, datatype)?;
    let known = crate::datatype::of(mpi, datatype)?;
    let bytes = times(outcount, known.signature.external)?.unsigned_abs();
    let packed = Packed::new(inbuf.into(), insize, position)?;
    let external = packed.next(bytes)?;
    let native = known
        .signature
        .decode(outcount.unsigned_abs(), external.as_slice());
    put(data, &native);
    packed.advance(external.bytes())
}

/// `MPI_Pack_external_size`.
pub fn pack_external_size(
    mpi: Mpi,
    datarep: &CStr,
    incount: i64,
    datatype: MPI_Datatype,
    size: OutCount<'_>,
) -> Result<()> {
    is_external32(datarep)?;
    let each = crate::datatype::of(mpi, datatype)?.signature.external;
    size.set(times(incount, each)?)
}

/// The packed buffer, with the position that the program passed.
struct Packed<'a> {
    buf: MutBuf,
    size: i64,
    position: InOutCount<'a>,
}

impl<'a> Packed<'a> {
    fn new(buf: MutBuf, size: i64, position: InOutCount<'a>) -> Result<Self> {
        let at = position.get();
        if size < 0 || !(0..=size).contains(&at) {
            let detail = format!("the position is {at} in a packed buffer of {size} bytes");
            return Err(Error::new(ErrorClass::ARG, detail));
        }
        Ok(Self {
            buf,
            size,
            position,
        })
    }

    /// The memory of the `bytes` bytes at the position; an error if the buffer has fewer bytes left. The position does
    /// not change.
    fn next(&self, bytes: u64) -> Result<UserMemory> {
        let at = self.position.get();
        let left = self.size - at;
        if bytes > left.unsigned_abs() {
            let detail = format!(
                "the data have {bytes} packed bytes, the packed buffer has {left} bytes after position {at}"
            );
            return Err(Error::new(ErrorClass::TRUNCATE, detail));
        }
        let bytes = usize::try_from(bytes).map_err(|_| bad_count(left))?;
        lend(self.buf, at, bytes)
    }

    fn advance(&self, bytes: usize) -> Result<()> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.position.set(self.position.get().saturating_add(bytes))
    }
}

fn data(mpi: Mpi, buf: MutBuf, count: i64, datatype: MPI_Datatype) -> Result<Payload> {
    let call = Pt2ptCall {
        buf,
        count,
        datatype,
        peer: 0,
        tag: 0,
        comm: MPI_Comm::SELF,
    };
    mpi.state(|state| payload(state, &call))
}

/// Copies contiguous bytes into the program's data.
fn put(data: Payload, bytes: &[u8]) {
    match data {
        Payload::Dense(mut memory) => memory.as_mut_slice().copy_from_slice(bytes),
        Payload::Structured(data) => data.unpack(bytes),
    }
}

/// `count` times `each` bytes.
fn times(count: i64, each: u64) -> Result<i64> {
    let count_of = u64::try_from(count).map_err(|_| bad_count(count))?;
    let bytes = count_of.checked_mul(each);
    let bytes = bytes.and_then(|bytes| i64::try_from(bytes).ok());
    bytes.ok_or_else(|| bad_count(count))
}

fn is_external32(datarep: &CStr) -> Result<()> {
    if datarep == c"external32" {
        return Ok(());
    }
    let given = datarep.to_string_lossy();
    let detail =
        format!("the data representation is \"{given}\", the one that is known is \"external32\"");
    Err(Error::new(ErrorClass::ARG, detail))
}
