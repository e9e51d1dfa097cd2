// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions (MPI 5.0 sections 6.9 to 6.11).

use core::ffi::c_int;
use std::rc::Rc;

use runtime::collective::CollectiveRoot;
use runtime::{CollectiveCall, Comm, Payload, UserMemory, collective};

use super::data::{self, Dense};
use super::{PreparedCollective, fast_path, three_forms};
use crate::args::{ConstBuf, CountsPtr, MutBuf, OutArg};
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Comm, MPI_Datatype, MPI_Info, MPI_Op, MPI_Request};
use crate::op::{Combiner, combiner};
use crate::pt2pt::bad_count;

type Done = core::result::Result<(), runtime::Error>;

three_forms!("Reduce" [fast_path::reduce]: prepare::reduce, reduce, ireduce, reduce_init(
    sendbuf: ConstBuf, recvbuf: MutBuf, count: i64, datatype: MPI_Datatype, op: MPI_Op, root: c_int));
three_forms!("Allreduce" [fast_path::allreduce]: prepare::allreduce, allreduce, iallreduce, allreduce_init(
    sendbuf: ConstBuf, recvbuf: MutBuf, count: i64, datatype: MPI_Datatype, op: MPI_Op));
three_forms!("Reduce_scatter_block" [fast_path::reduce_scatter_block]: prepare::reduce_scatter_block,
    reduce_scatter_block, ireduce_scatter_block, reduce_scatter_block_init(
    sendbuf: ConstBuf, recvbuf: MutBuf, recvcount: i64, datatype: MPI_Datatype, op: MPI_Op));
three_forms!("Reduce_scatter" [fast_path::reduce_scatter]: prepare::reduce_scatter,
    reduce_scatter, ireduce_scatter, reduce_scatter_init(
    sendbuf: ConstBuf, recvbuf: MutBuf, recvcounts: CountsPtr<'_>, datatype: MPI_Datatype, op: MPI_Op));
three_forms!("Scan" [fast_path::scan]: prepare::scan, scan, iscan, scan_init(
    sendbuf: ConstBuf, recvbuf: MutBuf, count: i64, datatype: MPI_Datatype, op: MPI_Op));
three_forms!("Exscan" [fast_path::exscan]: prepare::exscan, exscan, iexscan, exscan_init(
    sendbuf: ConstBuf, recvbuf: MutBuf, count: i64, datatype: MPI_Datatype, op: MPI_Op));

/// `MPI_Reduce_local`.
pub fn reduce_local(
    mpi: Mpi,
    inbuf: ConstBuf,
    inoutbuf: MutBuf,
    count: i64,
    datatype: MPI_Datatype,
    op: MPI_Op,
) -> Result<()> {
    use collective::Reducer;
    let op = combiner(mpi, op, datatype)?;
    let input = data::data(mpi, inbuf.into(), count, datatype)?.copy();
    let mut inout = Dense::of(&data::data(mpi, inoutbuf, count, datatype)?, true);
    op.reduce(&input, inout.bytes());
    inout.put_back();
    Ok(())
}

/// `MPI_Reduce`, prepared.
#[derive(Clone)]
struct Reduce {
    input: Payload,
    /// The receive buffer; `None` except at the root.
    output: Option<Payload>,
    /// The operation. `None` if the root is `MPI_PROC_NULL` on an intercommunicator: then only the arguments
    /// communicator and root are significant.
    op: Option<Combiner>,
    root: CollectiveRoot,
}

impl PreparedCollective for Reduce {
    fn root(&self) -> Option<CollectiveRoot> {
        Some(self.root)
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.input.bytes())
    }

    async fn run(&self, call: &CollectiveCall<Mpi>) -> Done {
        let Some(op) = &self.op else {
            return Ok(());
        };
        let mut result = self.output.as_ref().map(|output| Dense::of(output, false));
        if call.is_inter() {
            match &mut result {
                Some(result) => {
                    let bytes = result.bytes();
                    collective::inter::reduce_to(call, bytes, self.root, op).await?;
                }
                None => {
                    let mut bytes = self.input.copy();
                    collective::inter::reduce_to(call, &mut bytes, self.root, op).await?;
                }
            }
        } else {
            let root = match self.root {
                CollectiveRoot::There(root) => root,
                _ => call.rank(),
            };
            let mut input = Dense::of(&self.input, true);
            let output = result.as_mut().map(Dense::memory);
            collective::reduce(call, input.memory(), output, root, op).await?;
        }
        if let Some(result) = result {
            result.put_back();
        }
        Ok(())
    }
}

/// Reductions with a result on every rank.
#[derive(Clone)]
struct Everywhere {
    input: Payload,
    output: Payload,
    op: Combiner,
    kind: ReductionKind,
}

/// The kind of reduction.
#[derive(Clone, Copy)]
enum ReductionKind {
    Allreduce,
    Scan,
}

impl PreparedCollective for Everywhere {
    fn bytes(&self) -> Option<u64> {
        Some(self.input.bytes())
    }

    async fn run(&self, call: &CollectiveCall<Mpi>) -> Done {
        if call.is_inter() {
            let mut bytes = self.input.copy();
            let mut result = Dense::of(&self.output, false);
            collective::inter::allreduce(call, &mut bytes, result.bytes(), &self.op).await?;
            result.put_back();
            return Ok(());
        }
        let mut result = Dense::of(&self.output, false);
        let mut input = Dense::of(&self.input, true);
        let (input, output) = (input.memory(), result.memory());
        match self.kind {
            ReductionKind::Allreduce => {
                collective::allreduce(call, input, output, &self.op).await?
            }
            ReductionKind::Scan => {
                collective::scan(call, input, output, &self.op).await?;
            }
        }
        result.put_back();
        Ok(())
    }
}

/// Exclusive scan. Rank 0's output buffer stays unchanged (MPI 5.0 section 6.11.2), so rank 0 unpacks no result.
#[derive(Clone)]
struct Exscan {
    input: Payload,
    output: Payload,
    op: Combiner,
}

impl PreparedCollective for Exscan {
    fn bytes(&self) -> Option<u64> {
        Some(self.input.bytes())
    }

    async fn run(&self, call: &CollectiveCall<Mpi>) -> Done {
        let mut input = Dense::of(&self.input, true);
        let mut result = Dense::of(&self.output, false);
        collective::exscan(call, input.memory(), result.memory(), &self.op).await?;
        if call.rank() > 0 {
            result.put_back();
        }
        Ok(())
    }
}

/// `MPI_Reduce_scatter` and `MPI_Reduce_scatter_block`, prepared.
#[derive(Clone)]
struct ReduceScatter {
    input: Payload,
    output: Payload,
    /// Bytes of each rank's part of the result.
    lengths: Rc<[usize]>,
    op: Combiner,
}

impl PreparedCollective for ReduceScatter {
    fn bytes(&self) -> Option<u64> {
        Some(self.input.bytes())
    }

    async fn run(&self, call: &CollectiveCall<Mpi>) -> Done {
        let mut mine = Dense::of(&self.output, false);
        let (lengths, op) = (&self.lengths, &self.op);
        match call.is_inter() {
            true => {
                let mut bytes = self.input.copy();
                collective::inter::reduce_scatter(call, &mut bytes, lengths, mine.bytes(), op)
                    .await?;
            }
            false => {
                let mut input = Dense::of(&self.input, true);
                let (input, output) = (input.memory(), mine.memory());
                collective::reduce_scatter(call, input, lengths, output, op).await?;
            }
        }
        mine.put_back();
        Ok(())
    }
}

/// Functions that prepare the calls from the arguments.
mod prepare {
    use super::*;

    pub(super) fn reduce(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        recvbuf: MutBuf,
        count: i64,
        datatype: MPI_Datatype,
        op: MPI_Op,
        root: c_int,
    ) -> Result<Reduce> {
        let root = data::root_of(root, group)?;
        let op = match root {
            CollectiveRoot::Aside => None,
            _ => Some(combiner(mpi, op, datatype)?),
        };
        let is_root = root == CollectiveRoot::Here;
        data::no_place_between_groups(group, sendbuf.is_in_place())?;
        if sendbuf.is_in_place() && !is_root {
            let detail = "MPI_IN_PLACE as the send buffer is for the root alone";
            return Err(Error::new(ErrorClass::BUFFER, detail));
        }
        let gives = matches!(root, CollectiveRoot::There(_)) || is_root && !group.is_inter();
        let input = match gives {
            true => data::data(mpi, input_of(sendbuf, recvbuf), count, datatype)?,
            false => Payload::Dense(UserMemory::nothing()),
        };
        let output = match is_root {
            true => Some(data::data(mpi, recvbuf, count, datatype)?),
            false => None,
        };
        if !sendbuf.is_in_place() {
            data::not_the_same(Some(&input), output.as_ref())?;
        }
        Ok(Reduce {
            input,
            output,
            op,
            root,
        })
    }

    pub(super) fn allreduce(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        recvbuf: MutBuf,
        count: i64,
        datatype: MPI_Datatype,
        op: MPI_Op,
    ) -> Result<Everywhere> {
        data::no_place_between_groups(group, sendbuf.is_in_place())?;
        let (input, output) = both(mpi, sendbuf, recvbuf, count, datatype)?;
        Ok(Everywhere {
            op: combiner(mpi, op, datatype)?,
            input,
            output,
            kind: ReductionKind::Allreduce,
        })
    }

    pub(super) fn scan(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        recvbuf: MutBuf,
        count: i64,
        datatype: MPI_Datatype,
        op: MPI_Op,
    ) -> Result<Everywhere> {
        not_between_groups(group)?;
        let prepared = allreduce(mpi, group, sendbuf, recvbuf, count, datatype, op)?;
        let kind = ReductionKind::Scan;
        Ok(Everywhere { kind, ..prepared })
    }

    pub(super) fn exscan(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        recvbuf: MutBuf,
        count: i64,
        datatype: MPI_Datatype,
        op: MPI_Op,
    ) -> Result<Exscan> {
        not_between_groups(group)?;
        let (input, output) = both(mpi, sendbuf, recvbuf, count, datatype)?;
        Ok(Exscan {
            op: combiner(mpi, op, datatype)?,
            input,
            output,
        })
    }

    pub(super) fn reduce_scatter_block(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        recvbuf: MutBuf,
        recvcount: i64,
        datatype: MPI_Datatype,
        op: MPI_Op,
    ) -> Result<ReduceScatter> {
        let counts = vec![recvcount; group.size() as usize];
        scattered(mpi, group, sendbuf, recvbuf, &counts, datatype, op)
    }

    pub(super) fn reduce_scatter(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        recvbuf: MutBuf,
        recvcounts: CountsPtr<'_>,
        datatype: MPI_Datatype,
        op: MPI_Op,
    ) -> Result<ReduceScatter> {
        let counts: Vec<i64> = recvcounts.slice(group.size() as usize)?.iter().collect();
        scattered(mpi, group, sendbuf, recvbuf, &counts, datatype, op)
    }

    fn scattered(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        recvbuf: MutBuf,
        counts: &[i64],
        datatype: MPI_Datatype,
        op: MPI_Op,
    ) -> Result<ReduceScatter> {
        let op = combiner(mpi, op, datatype)?;
        data::no_place_between_groups(group, sendbuf.is_in_place())?;
        if let Some(negative) = counts.iter().find(|count| **count < 0) {
            return Err(bad_count(*negative));
        }
        let sum = counts
            .iter()
            .try_fold(0i64, |sum, count| sum.checked_add(*count));
        let all = sum.ok_or_else(|| bad_count(i64::MAX))?;
        let input = data::data(mpi, input_of(sendbuf, recvbuf), all, datatype)?;
        let output = data::data(mpi, recvbuf, counts[group.rank as usize], datatype)?;
        if !sendbuf.is_in_place() {
            data::not_the_same(Some(&input), Some(&output))?;
        }
        let item = op.item_bytes();
        let length = |count: &i64| usize::try_from(*count).unwrap_or(0) * item;
        Ok(ReduceScatter {
            input,
            output,
            lengths: counts.iter().map(length).collect(),
            op,
        })
    }

    /// Input and output of equal counts.
    fn both(
        mpi: Mpi,
        sendbuf: ConstBuf,
        recvbuf: MutBuf,
        count: i64,
        datatype: MPI_Datatype,
    ) -> Result<(Payload, Payload)> {
        let input = data::data(mpi, input_of(sendbuf, recvbuf), count, datatype)?;
        let output = data::data(mpi, recvbuf, count, datatype)?;
        if !sendbuf.is_in_place() {
            data::not_the_same(Some(&input), Some(&output))?;
        }
        Ok((input, output))
    }

    /// Checks that a scan is on an intracommunicator (MPI 5.0 section 6.11).
    fn not_between_groups(group: &Comm) -> Result<()> {
        if group.is_inter() {
            let detail =
                "the communicator is an intercommunicator, a scan needs an intracommunicator";
            return Err(Error::new(ErrorClass::COMM, detail));
        }
        Ok(())
    }

    /// This rank's input: the send buffer, or the receive buffer if the send buffer is `MPI_IN_PLACE`.
    fn input_of(sendbuf: ConstBuf, recvbuf: MutBuf) -> MutBuf {
        match sendbuf.is_in_place() {
            true => recvbuf,
            false => sendbuf.into(),
        }
    }

    use collective::Reducer;
}
