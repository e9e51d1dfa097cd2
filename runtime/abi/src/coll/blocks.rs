// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barrier, broadcast, gather, scatter, allgather, all-to-all (MPI 5.0 sections 6.3 to 6.8).

use core::ffi::c_int;
use std::rc::Rc;

use runtime::collective::{CollectiveRoot, choice};
use runtime::{CollectiveCall, Comm, Payload, UserMemory, collective};

use super::data::{self, Blocks, Dense, Equal};
use super::{PreparedCollective, fast_path, three_forms};
use crate::args::{Array, ConstBuf, CountsPtr, MutBuf, OutArg};
use crate::enter::Mpi;
use crate::error::Result;
use crate::handle::{MPI_Comm, MPI_Datatype, MPI_Info, MPI_Request};

type Done = core::result::Result<(), runtime::Error>;

three_forms!("Barrier" [fast_path::barrier]: prepare::barrier, barrier, ibarrier, barrier_init());
three_forms!("Bcast" [fast_path::bcast]: prepare::bcast, bcast, ibcast, bcast_init(
    buffer: MutBuf, count: i64, datatype: MPI_Datatype, root: c_int));
three_forms!("Gather" [fast_path::gather]: prepare::gather, gather, igather, gather_init(
    sendbuf: ConstBuf, sendcount: i64, sendtype: MPI_Datatype,
    recvbuf: MutBuf, recvcount: i64, recvtype: MPI_Datatype, root: c_int));
three_forms!("Gatherv" [fast_path::gatherv]: prepare::gatherv, gatherv, igatherv, gatherv_init(
    sendbuf: ConstBuf, sendcount: i64, sendtype: MPI_Datatype,
    recvbuf: MutBuf, recvcounts: CountsPtr<'_>, displs: CountsPtr<'_>, recvtype: MPI_Datatype, root: c_int));
three_forms!("Scatter" [fast_path::scatter]: prepare::scatter, scatter, iscatter, scatter_init(
    sendbuf: ConstBuf, sendcount: i64, sendtype: MPI_Datatype,
    recvbuf: MutBuf, recvcount: i64, recvtype: MPI_Datatype, root: c_int));
three_forms!("Scatterv" [fast_path::scatterv]: prepare::scatterv, scatterv, iscatterv, scatterv_init(
    sendbuf: ConstBuf, sendcounts: CountsPtr<'_>, displs: CountsPtr<'_>, sendtype: MPI_Datatype,
    recvbuf: MutBuf, recvcount: i64, recvtype: MPI_Datatype, root: c_int));
three_forms!("Allgather" [fast_path::allgather]: prepare::allgather, allgather, iallgather, allgather_init(
    sendbuf: ConstBuf, sendcount: i64, sendtype: MPI_Datatype,
    recvbuf: MutBuf, recvcount: i64, recvtype: MPI_Datatype));
three_forms!("Allgatherv" [fast_path::allgatherv]: prepare::allgatherv, allgatherv, iallgatherv, allgatherv_init(
    sendbuf: ConstBuf, sendcount: i64, sendtype: MPI_Datatype,
    recvbuf: MutBuf, recvcounts: CountsPtr<'_>, displs: CountsPtr<'_>, recvtype: MPI_Datatype));
three_forms!("Alltoall" [fast_path::alltoall]: prepare::alltoall, alltoall, ialltoall, alltoall_init(
    sendbuf: ConstBuf, sendcount: i64, sendtype: MPI_Datatype,
    recvbuf: MutBuf, recvcount: i64, recvtype: MPI_Datatype));
three_forms!("Alltoallv" [fast_path::alltoallv]: prepare::alltoallv, alltoallv, ialltoallv, alltoallv_init(
    sendbuf: ConstBuf, sendcounts: CountsPtr<'_>, sdispls: CountsPtr<'_>, sendtype: MPI_Datatype,
    recvbuf: MutBuf, recvcounts: CountsPtr<'_>, rdispls: CountsPtr<'_>, recvtype: MPI_Datatype));
three_forms!("Alltoallw": prepare::alltoallw, alltoallw, ialltoallw, alltoallw_init(
    sendbuf: ConstBuf, sendcounts: CountsPtr<'_>, sdispls: CountsPtr<'_>, sendtypes: Array<'_, MPI_Datatype>,
    recvbuf: MutBuf, recvcounts: CountsPtr<'_>, rdispls: CountsPtr<'_>, recvtypes: Array<'_, MPI_Datatype>));

/// `MPI_Barrier`, prepared.
#[derive(Clone)]
struct Barrier;

impl PreparedCollective for Barrier {
    async fn run(&self, call: &CollectiveCall<Mpi>) -> Done {
        match call.is_inter() {
            true => collective::inter::barrier(call).await,
            false => collective::barrier(call).await,
        }
    }
}

/// `MPI_Bcast`, prepared: the buffer is the source at the root and the target elsewhere.
#[derive(Clone)]
struct Bcast {
    data: Payload,
    root: CollectiveRoot,
}

impl PreparedCollective for Bcast {
    fn root(&self) -> Option<CollectiveRoot> {
        Some(self.root)
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.data.bytes())
    }

    async fn run(&self, call: &CollectiveCall<Mpi>) -> Done {
        let is_root = self.root == CollectiveRoot::Here;
        let mut data = Dense::of(&self.data, is_root);
        match (call.is_inter(), self.root) {
            (true, CollectiveRoot::Here) => {
                return collective::inter::bcast_from_here(call, data.as_slice()).await;
            }
            (false, CollectiveRoot::Here) => {
                return collective::bcast_from_here(call, data.as_slice()).await;
            }
            (true, root) => collective::inter::bcast(call, data.bytes(), root).await?,
            (false, CollectiveRoot::There(root)) => {
                collective::bcast(call, data.bytes(), root).await?
            }
            (false, CollectiveRoot::Aside) => {}
        }
        data.put_back();
        Ok(())
    }
}

/// `MPI_Gather` and `MPI_Gatherv`, prepared. `mine`: the block to send; `None`: it is in place at the root.
#[derive(Clone)]
struct Gather {
    mine: Option<Payload>,
    /// The blocks of all ranks; empty except at the root.
    all: Blocks,
    root: CollectiveRoot,
    method: GatherMethod,
}

/// The method of a gather.
#[derive(Clone, Copy)]
enum GatherMethod {
    /// A message from each rank to the root.
    Direct,
    /// The best algorithm for equal blocks in one group.
    Equal,
    /// The best algorithm for blocks whose lengths are known only to the root.
    Various,
    /// An algorithm along a tree, for equal blocks in one group.
    Tree,
}

impl PreparedCollective for Gather {
    fn root(&self) -> Option<CollectiveRoot> {
        Some(self.root)
    }

    async fn run(&self, call: &CollectiveCall<Mpi>) -> Done {
        let mine = self.mine.as_ref();
        match self.method {
            GatherMethod::Direct => collective::gather(call, mine, &self.all, self.root).await,
            GatherMethod::Equal => collective::gather_equal(call, mine, &self.all, self.root).await,
            GatherMethod::Various => {
                collective::gather_various(call, mine, &self.all, self.root).await
            }
            GatherMethod::Tree => collective::gather_tree(call, mine, &self.all, self.root).await,
        }
    }
}

/// `MPI_Scatter` and `MPI_Scatterv`, prepared. `mine`: the receive buffer; `None`: the block stays in place at the
/// root.
#[derive(Clone)]
struct Scatter {
    /// The blocks of all ranks; empty except at the root.
    all: Blocks,
    mine: Option<Payload>,
    root: CollectiveRoot,
    method: ScatterMethod,
}

/// The method of a scatter.
#[derive(Clone, Copy)]
enum ScatterMethod {
    /// A message from the root to each rank.
    Direct,
    /// The best algorithm for equal blocks in one group.
    Equal,
    /// The best algorithm for blocks whose lengths are known only to the root.
    Various,
    /// An algorithm along a tree, for equal blocks in one group.
    Tree,
}

impl PreparedCollective for Scatter {
    fn root(&self) -> Option<CollectiveRoot> {
        Some(self.root)
    }

    async fn run(&self, call: &CollectiveCall<Mpi>) -> Done {
        let mine = self.mine.as_ref();
        match self.method {
            ScatterMethod::Tree => collective::scatter_tree(call, &self.all, mine, self.root).await,
            ScatterMethod::Equal => {
                collective::scatter_equal(call, &self.all, mine, self.root).await
            }
            ScatterMethod::Various => {
                collective::scatter_various(call, &self.all, mine, self.root).await
            }
            ScatterMethod::Direct => collective::scatter(call, &self.all, mine, self.root).await,
        }
    }
}

/// `MPI_Allgather`, prepared. `mine`: the block to send; `None`: it is in place.
#[derive(Clone)]
struct Allgather {
    mine: Option<Payload>,
    all: Equal,
    method: AllgatherMethod,
}

/// The method of an allgather whose blocks are separate messages.
#[derive(Clone, Copy)]
enum AllgatherMethod {
    /// A message from each rank to each rank.
    Direct,
    /// The best algorithm for blocks of different lengths.
    Various,
    /// Around a ring.
    Ring,
}

impl PreparedCollective for Allgather {
    fn bytes(&self) -> Option<u64> {
        Some(self.all.bytes())
    }

    async fn run(&self, call: &CollectiveCall<Mpi>) -> Done {
        let mine = self.mine.as_ref();
        let whole = match (&self.all, self.method) {
            (Equal::Small(whole), _) => whole,
            (Equal::Each(all), AllgatherMethod::Direct) => {
                return collective::allgather_equal(call, mine, all).await;
            }
            (Equal::Each(all), AllgatherMethod::Various) => {
                return collective::allgather_various(call, mine, all).await;
            }
            (Equal::Each(all), AllgatherMethod::Ring) => {
                return collective::allgather_ring(call, mine, all).await;
            }
        };
        let mut all = Dense::of(whole, self.mine.is_none());
        if let Some(mine) = &self.mine {
            put_own(call, &mine.copy(), all.bytes());
        }
        collective::allgather_bytes(call, all.bytes()).await?;
        all.put_back();
        Ok(())
    }
}

/// `MPI_Alltoall`, prepared.
#[derive(Clone)]
struct Alltoall {
    /// The blocks to send; `None`: `MPI_IN_PLACE`.
    out: Option<Equal>,
    into: Equal,
    method: AlltoallMethod,
}

/// The method of an all-to-all whose blocks are separate messages.
#[derive(Clone, Copy)]
enum AlltoallMethod {
    /// A message from each rank to each rank.
    Direct,
    /// The best algorithm for blocks of different lengths.
    Various,
}

impl AlltoallMethod {
    async fn exchange(self, call: &CollectiveCall<Mpi>, out: &[Payload], into: &[Payload]) -> Done {
        match self {
            Self::Direct => collective::alltoall(call, out, into).await,
            Self::Various => collective::alltoall_various(call, out, into).await,
        }
    }
}

impl PreparedCollective for Alltoall {
    async fn run(&self, call: &CollectiveCall<Mpi>) -> Done {
        match (&self.out, &self.into) {
            (Some(Equal::Each(out)), Equal::Each(into)) => {
                self.method.exchange(call, out, into).await
            }
            (None, Equal::Each(into)) => {
                let kept: Vec<Box<[u8]>> = into.iter().map(Payload::copy).collect();
                let lent = kept.iter().map(|bytes| UserMemory::of_const(bytes));
                let out: Vec<Payload> = lent.map(Payload::Dense).collect();
                self.method.exchange(call, &out, into).await
            }
            (out, Equal::Small(into)) => {
                let mut out = match out {
                    Some(Equal::Small(out)) => out.copy().into_vec(),
                    Some(Equal::Each(_)) => return Err(unequal(0, into.bytes())),
                    None => into.copy().into_vec(),
                };
                if out.len() as u64 != into.bytes() {
                    call.note(unequal(out.len() as u64, into.bytes()));
                    out.resize(usize::try_from(into.bytes()).unwrap_or(0), 0);
                }
                let mut into = Dense::of(into, false);
                collective::alltoall_bytes(call, &out, into.bytes()).await?;
                into.put_back();
                Ok(())
            }
            (Some(Equal::Small(out)), Equal::Each(into)) => {
                let expected = into.iter().map(Payload::bytes).sum();
                Err(unequal(out.bytes(), expected))
            }
        }
    }
}

/// Copies this rank's own block to its position in `all`.
fn put_own(call: &CollectiveCall<Mpi>, mine: &[u8], all: &mut [u8]) {
    let block = all.len() / call.size() as usize;
    let place = &mut all[call.rank() as usize * block..][..block];
    let fits = mine.len().min(block);
    place[..fits].copy_from_slice(&mine[..fits]);
    if mine.len() != block {
        call.note(unequal(mine.len() as u64, block as u64));
    }
}

fn unequal(given: u64, expected: u64) -> runtime::Error {
    runtime::Error::Unequal { given, expected }
}

/// Functions that prepare the calls from the arguments.
mod prepare {
    use super::*;

    pub(super) fn barrier(_mpi: Mpi, _group: &Comm) -> Result<Barrier> {
        Ok(Barrier)
    }

    pub(super) fn bcast(
        mpi: Mpi,
        group: &Comm,
        buffer: MutBuf,
        count: i64,
        datatype: MPI_Datatype,
        root: c_int,
    ) -> Result<Bcast> {
        let root = data::root_of(root, group)?;
        // With MPI_PROC_NULL as the root the other arguments are ignored (MPI 5.0 section 6.4).
        let data = match root {
            CollectiveRoot::Aside => Payload::Dense(UserMemory::nothing()),
            _ => data::data(mpi, buffer, count, datatype)?,
        };
        Ok(Bcast { data, root })
    }

    pub(super) fn gather(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        sendcount: i64,
        sendtype: MPI_Datatype,
        recvbuf: MutBuf,
        recvcount: i64,
        recvtype: MPI_Datatype,
        root: c_int,
    ) -> Result<Gather> {
        let prepared = gathered(mpi, group, (sendbuf, sendcount, sendtype), root, || {
            data::equal(mpi, data::partners(group), recvbuf, recvcount, recvtype)
        })?;
        let method = match data::shape(mpi).choice.gather {
            _ if group.is_inter() => GatherMethod::Direct,
            choice::Gather::Tree => GatherMethod::Tree,
            _ => GatherMethod::Equal,
        };
        Ok(Gather { method, ..prepared })
    }

    pub(super) fn gatherv(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        sendcount: i64,
        sendtype: MPI_Datatype,
        recvbuf: MutBuf,
        recvcounts: CountsPtr<'_>,
        displs: CountsPtr<'_>,
        recvtype: MPI_Datatype,
        root: c_int,
    ) -> Result<Gather> {
        gathered(mpi, group, (sendbuf, sendcount, sendtype), root, || {
            data::various(
                mpi,
                data::partners(group),
                recvbuf,
                recvcounts,
                displs,
                recvtype,
            )
        })
    }

    fn gathered(
        mpi: Mpi,
        group: &Comm,
        (buf, count, datatype): (ConstBuf, i64, MPI_Datatype),
        root: c_int,
        all: impl FnOnce() -> Result<Blocks>,
    ) -> Result<Gather> {
        let root = data::root_of(root, group)?;
        let mine = match root {
            CollectiveRoot::Here if group.is_inter() => None,
            CollectiveRoot::Here => data::own(mpi, buf, count, datatype)?,
            CollectiveRoot::There(_) => Some(data::data(mpi, buf.into(), count, datatype)?),
            CollectiveRoot::Aside => None,
        };
        let all = match root {
            CollectiveRoot::Here => all()?,
            _ => Rc::new([]),
        };
        data::not_the_same(mine.as_ref(), all.get(group.rank as usize))?;
        Ok(Gather {
            mine,
            all,
            root,
            method: GatherMethod::Various,
        })
    }

    pub(super) fn scatter(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        sendcount: i64,
        sendtype: MPI_Datatype,
        recvbuf: MutBuf,
        recvcount: i64,
        recvtype: MPI_Datatype,
        root: c_int,
    ) -> Result<Scatter> {
        let prepared = scattered(mpi, group, (recvbuf, recvcount, recvtype), root, || {
            data::equal(
                mpi,
                data::partners(group),
                sendbuf.into(),
                sendcount,
                sendtype,
            )
        })?;
        let method = match data::shape(mpi).choice.scatter {
            _ if group.is_inter() => ScatterMethod::Direct,
            choice::Scatter::Tree => ScatterMethod::Tree,
            choice::Scatter::Auto | choice::Scatter::Nodes => ScatterMethod::Equal,
            choice::Scatter::Direct => ScatterMethod::Direct,
        };
        Ok(Scatter { method, ..prepared })
    }

    pub(super) fn scatterv(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        sendcounts: CountsPtr<'_>,
        displs: CountsPtr<'_>,
        sendtype: MPI_Datatype,
        recvbuf: MutBuf,
        recvcount: i64,
        recvtype: MPI_Datatype,
        root: c_int,
    ) -> Result<Scatter> {
        scattered(mpi, group, (recvbuf, recvcount, recvtype), root, || {
            data::various(
                mpi,
                data::partners(group),
                sendbuf.into(),
                sendcounts,
                displs,
                sendtype,
            )
        })
    }

    fn scattered(
        mpi: Mpi,
        group: &Comm,
        (buf, count, datatype): (MutBuf, i64, MPI_Datatype),
        root: c_int,
        all: impl FnOnce() -> Result<Blocks>,
    ) -> Result<Scatter> {
        let root = data::root_of(root, group)?;
        let mine = match root {
            CollectiveRoot::Here if buf.is_in_place() || group.is_inter() => None,
            CollectiveRoot::Aside => None,
            _ => Some(data::data(mpi, buf, count, datatype)?),
        };
        let all = match root {
            CollectiveRoot::Here => all()?,
            _ => Rc::new([]),
        };
        data::not_the_same(all.get(group.rank as usize), mine.as_ref())?;
        Ok(Scatter {
            all,
            mine,
            root,
            method: ScatterMethod::Various,
        })
    }

    pub(super) fn allgather(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        sendcount: i64,
        sendtype: MPI_Datatype,
        recvbuf: MutBuf,
        recvcount: i64,
        recvtype: MPI_Datatype,
    ) -> Result<Allgather> {
        data::no_place_between_groups(group, sendbuf.is_in_place())?;
        let mine = data::own(mpi, sendbuf, sendcount, sendtype)?;
        let (shape, size) = (data::shape(mpi), group.size() as usize);
        let place = data::place(mpi, group);
        let is_small = |block: usize| shape.gathers_bytes(block, size, place);
        let all = data::equal_or_whole(mpi, group, recvbuf, recvcount, recvtype, is_small)?;
        data::not_its_place(mine.as_ref(), &all, group)?;
        let method = match shape.choice.allgather {
            choice::Allgather::Ring if !group.is_inter() => AllgatherMethod::Ring,
            _ => AllgatherMethod::Direct,
        };
        Ok(Allgather { mine, all, method })
    }

    pub(super) fn allgatherv(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        sendcount: i64,
        sendtype: MPI_Datatype,
        recvbuf: MutBuf,
        recvcounts: CountsPtr<'_>,
        displs: CountsPtr<'_>,
        recvtype: MPI_Datatype,
    ) -> Result<Allgather> {
        data::no_place_between_groups(group, sendbuf.is_in_place())?;
        let mine = data::own(mpi, sendbuf, sendcount, sendtype)?;
        let all = data::various(
            mpi,
            data::partners(group),
            recvbuf,
            recvcounts,
            displs,
            recvtype,
        )?;
        let all = Equal::Each(all);
        data::not_its_place(mine.as_ref(), &all, group)?;
        let method = match data::shape(mpi).choice.allgatherv {
            choice::Allgatherv::Ring if !group.is_inter() => AllgatherMethod::Ring,
            _ => AllgatherMethod::Various,
        };
        Ok(Allgather { mine, all, method })
    }

    pub(super) fn alltoall(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        sendcount: i64,
        sendtype: MPI_Datatype,
        recvbuf: MutBuf,
        recvcount: i64,
        recvtype: MPI_Datatype,
    ) -> Result<Alltoall> {
        let (shape, size) = (data::shape(mpi), group.size() as usize);
        let place = data::place(mpi, group);
        let is_small = |block: usize| shape.exchanges_bytes(block, size, place);
        data::no_place_between_groups(group, sendbuf.is_in_place())?;
        let out = match sendbuf.is_in_place() {
            true => None,
            false => Some(data::equal_or_whole(
                mpi,
                group,
                sendbuf.into(),
                sendcount,
                sendtype,
                is_small,
            )?),
        };
        let into = data::equal_or_whole(mpi, group, recvbuf, recvcount, recvtype, is_small)?;
        if let Some(out) = &out {
            data::not_the_same_block(out, &into, group.rank, group.size())?;
        }
        let method = match (&into, group.is_inter()) {
            (Equal::Each(blocks), false) if shape.exchanges_in_rounds(blocks) => {
                AlltoallMethod::Various
            }
            _ => AlltoallMethod::Direct,
        };
        Ok(Alltoall { out, into, method })
    }

    pub(super) fn alltoallv(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        sendcounts: CountsPtr<'_>,
        sdispls: CountsPtr<'_>,
        sendtype: MPI_Datatype,
        recvbuf: MutBuf,
        recvcounts: CountsPtr<'_>,
        rdispls: CountsPtr<'_>,
        recvtype: MPI_Datatype,
    ) -> Result<Alltoall> {
        data::no_place_between_groups(group, sendbuf.is_in_place())?;
        let out = match sendbuf.is_in_place() {
            true => None,
            false => Some(Equal::Each(data::various(
                mpi,
                data::partners(group),
                sendbuf.into(),
                sendcounts,
                sdispls,
                sendtype,
            )?)),
        };
        let into = data::various(
            mpi,
            data::partners(group),
            recvbuf,
            recvcounts,
            rdispls,
            recvtype,
        )?;
        let into = Equal::Each(into);
        if let Some(out) = &out {
            data::not_the_same_block(out, &into, group.rank, group.size())?;
        }
        let method = AlltoallMethod::Various;
        Ok(Alltoall { out, into, method })
    }

    pub(super) fn alltoallw(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        sendcounts: CountsPtr<'_>,
        sdispls: CountsPtr<'_>,
        sendtypes: Array<'_, MPI_Datatype>,
        recvbuf: MutBuf,
        recvcounts: CountsPtr<'_>,
        rdispls: CountsPtr<'_>,
        recvtypes: Array<'_, MPI_Datatype>,
    ) -> Result<Alltoall> {
        data::no_place_between_groups(group, sendbuf.is_in_place())?;
        let out = match sendbuf.is_in_place() {
            true => None,
            false => Some(Equal::Each(data::of_many_types(
                mpi,
                data::partners(group),
                sendbuf.into(),
                sendcounts,
                sdispls,
                sendtypes,
            )?)),
        };
        let into = data::of_many_types(
            mpi,
            data::partners(group),
            recvbuf,
            recvcounts,
            rdispls,
            recvtypes,
        )?;
        let into = Equal::Each(into);
        if let Some(out) = &out {
            data::not_the_same_block(out, &into, group.rank, group.size())?;
        }
        // If waits are expensive, for example because ranks share cores, `flat` is true. Otherwise a message from each
        // rank to each rank is faster.
        let method = match data::shape(mpi).flat {
            true => AlltoallMethod::Various,
            false => AlltoallMethod::Direct,
        };
        Ok(Alltoall { out, into, method })
    }
}
