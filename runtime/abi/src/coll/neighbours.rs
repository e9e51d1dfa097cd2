// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives among the neighbours of a topology (MPI 5.0 sections 8.6 to 8.8).

use std::rc::Rc;

use runtime::collective::Neighbourhood;
use runtime::{CollectiveCall, Comm};

use super::data::{self, Blocks};
use super::{PreparedCollective, three_forms};
use crate::args::{Array, ConstBuf, CountsPtr, MutBuf, OutArg};
use crate::enter::Mpi;
use crate::error::{Error, ErrorClass, Result};
use crate::handle::{MPI_Aint, MPI_Comm, MPI_Datatype, MPI_Info, MPI_Request};

three_forms!("Neighbor_allgather": prepare::allgather,
    neighbor_allgather, ineighbor_allgather, neighbor_allgather_init(
    sendbuf: ConstBuf, sendcount: i64, sendtype: MPI_Datatype,
    recvbuf: MutBuf, recvcount: i64, recvtype: MPI_Datatype));
three_forms!("Neighbor_allgatherv": prepare::allgatherv,
    neighbor_allgatherv, ineighbor_allgatherv, neighbor_allgatherv_init(
    sendbuf: ConstBuf, sendcount: i64, sendtype: MPI_Datatype,
    recvbuf: MutBuf, recvcounts: CountsPtr<'_>, displs: CountsPtr<'_>, recvtype: MPI_Datatype));
three_forms!("Neighbor_alltoall": prepare::alltoall,
    neighbor_alltoall, ineighbor_alltoall, neighbor_alltoall_init(
    sendbuf: ConstBuf, sendcount: i64, sendtype: MPI_Datatype,
    recvbuf: MutBuf, recvcount: i64, recvtype: MPI_Datatype));
three_forms!("Neighbor_alltoallv": prepare::alltoallv,
    neighbor_alltoallv, ineighbor_alltoallv, neighbor_alltoallv_init(
    sendbuf: ConstBuf, sendcounts: CountsPtr<'_>, sdispls: CountsPtr<'_>, sendtype: MPI_Datatype,
    recvbuf: MutBuf, recvcounts: CountsPtr<'_>, rdispls: CountsPtr<'_>, recvtype: MPI_Datatype));
three_forms!("Neighbor_alltoallw": prepare::alltoallw,
    neighbor_alltoallw, ineighbor_alltoallw, neighbor_alltoallw_init(
    sendbuf: ConstBuf, sendcounts: CountsPtr<'_>, sdispls: Array<'_, MPI_Aint>, sendtypes: Array<'_, MPI_Datatype>,
    recvbuf: MutBuf, recvcounts: CountsPtr<'_>, rdispls: Array<'_, MPI_Aint>, recvtypes: Array<'_, MPI_Datatype>));

/// A neighborhood collective, prepared: one block to each destination and one from each source.
#[derive(Clone)]
struct Exchange {
    neighbourhood: Rc<Neighbourhood>,
    out: Blocks,
    into: Blocks,
}

impl PreparedCollective for Exchange {
    async fn run(&self, call: &CollectiveCall<Mpi>) -> core::result::Result<(), runtime::Error> {
        self.neighbourhood
            .exchange(call, &self.out, &self.into)
            .await
    }
}

/// Functions that prepare calls from their arguments.
mod prepare {
    use super::*;

    /// Buffer, count and datatype.
    type Data<B> = (B, i64, MPI_Datatype);

    pub(super) fn allgather(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        sendcount: i64,
        sendtype: MPI_Datatype,
        recvbuf: MutBuf,
        recvcount: i64,
        recvtype: MPI_Datatype,
    ) -> Result<Exchange> {
        gathered(mpi, group, (sendbuf, sendcount, sendtype), |sources| {
            data::equal(mpi, sources, recvbuf, recvcount, recvtype)
        })
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
    ) -> Result<Exchange> {
        gathered(mpi, group, (sendbuf, sendcount, sendtype), |sources| {
            data::various(mpi, sources, recvbuf, recvcounts, displs, recvtype)
        })
    }

    /// Prepares a neighbour allgather: each destination gets the same block.
    fn gathered(
        mpi: Mpi,
        group: &Comm,
        (buf, count, datatype): Data<ConstBuf>,
        into: impl FnOnce(usize) -> Result<Blocks>,
    ) -> Result<Exchange> {
        exchanged(
            group,
            buf,
            |destinations| {
                let mine = data::data(mpi, buf.into(), count, datatype)?;
                Ok((0..destinations).map(|_| mine.clone()).collect())
            },
            into,
        )
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
    ) -> Result<Exchange> {
        exchanged(
            group,
            sendbuf,
            |destinations| data::equal(mpi, destinations, sendbuf.into(), sendcount, sendtype),
            |sources| data::equal(mpi, sources, recvbuf, recvcount, recvtype),
        )
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
    ) -> Result<Exchange> {
        let from = sendbuf.into();
        exchanged(
            group,
            sendbuf,
            |destinations| data::various(mpi, destinations, from, sendcounts, sdispls, sendtype),
            |sources| data::various(mpi, sources, recvbuf, recvcounts, rdispls, recvtype),
        )
    }

    pub(super) fn alltoallw(
        mpi: Mpi,
        group: &Comm,
        sendbuf: ConstBuf,
        sendcounts: CountsPtr<'_>,
        sdispls: Array<'_, MPI_Aint>,
        sendtypes: Array<'_, MPI_Datatype>,
        recvbuf: MutBuf,
        recvcounts: CountsPtr<'_>,
        rdispls: Array<'_, MPI_Aint>,
        recvtypes: Array<'_, MPI_Datatype>,
    ) -> Result<Exchange> {
        let from = sendbuf.into();
        let (sdispls, rdispls) = (CountsPtr::Address(sdispls), CountsPtr::Address(rdispls));
        exchanged(
            group,
            sendbuf,
            |count| data::of_many_types(mpi, count, from, sendcounts, sdispls, sendtypes),
            |count| data::of_many_types(mpi, count, recvbuf, recvcounts, rdispls, recvtypes),
        )
    }

    fn exchanged(
        group: &Comm,
        sendbuf: ConstBuf,
        out: impl FnOnce(usize) -> Result<Blocks>,
        into: impl FnOnce(usize) -> Result<Blocks>,
    ) -> Result<Exchange> {
        let Some(topology) = &group.topology else {
            let detail = "the communicator has no topology; MPI_Cart_create, MPI_Graph_create and MPI_Dist_graph_create make ones that have";
            return Err(Error::new(ErrorClass::TOPOLOGY, detail));
        };
        if sendbuf.is_in_place() {
            let detail = "MPI_IN_PLACE was given for the exchange with neighbours, where nothing can be in place";
            return Err(Error::new(ErrorClass::BUFFER, detail));
        }
        let neighbourhood = Neighbourhood::new(topology, group.rank);
        Ok(Exchange {
            out: out(neighbourhood.destinations())?,
            into: into(neighbourhood.sources())?,
            neighbourhood: Rc::new(neighbourhood),
        })
    }
}
