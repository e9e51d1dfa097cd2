// SPDX-License-Identifier: MIT OR Apache-2.0
//! The constants of `infiniband/verbs.h`.
#![allow(
    missing_docs,
    reason = "the constants are rdma-core's; its manual pages describe them"
)]

use core::ffi::c_uint;

/// Defines the constants, and a list of them that a test compares with the header.
macro_rules! numbers {
    ($($name:ident = $value:expr;)*) => {
        $(pub const $name: c_uint = $value;)*

        /// All constants, by name.
        pub const NUMBERS: &[(&str, c_uint)] = &[$((stringify!($name), $name)),*];
    };
}

numbers! {
    IBV_MTU_256 = 1;
    IBV_MTU_512 = 2;
    IBV_MTU_1024 = 3;
    IBV_MTU_2048 = 4;
    IBV_MTU_4096 = 5;

    IBV_PORT_DOWN = 1;
    IBV_PORT_INIT = 2;
    IBV_PORT_ARMED = 3;
    IBV_PORT_ACTIVE = 4;

    IBV_LINK_LAYER_INFINIBAND = 1;
    IBV_LINK_LAYER_ETHERNET = 2;

    IBV_GID_TYPE_IB = 0;
    IBV_GID_TYPE_ROCE_V1 = 1;
    IBV_GID_TYPE_ROCE_V2 = 2;

    IBV_ATOMIC_NONE = 0;
    IBV_ATOMIC_HCA = 1;
    IBV_ATOMIC_GLOB = 2;

    IBV_ACCESS_LOCAL_WRITE = 1;
    IBV_ACCESS_REMOTE_WRITE = 1 << 1;
    IBV_ACCESS_REMOTE_READ = 1 << 2;
    IBV_ACCESS_REMOTE_ATOMIC = 1 << 3;
    IBV_ACCESS_RELAXED_ORDERING = 1 << 20;

    IBV_QPT_RC = 2;
    IBV_QPT_UC = 3;
    IBV_QPT_UD = 4;

    IBV_QPS_RESET = 0;
    IBV_QPS_INIT = 1;
    IBV_QPS_RTR = 2;
    IBV_QPS_RTS = 3;
    IBV_QPS_SQD = 4;
    IBV_QPS_SQE = 5;
    IBV_QPS_ERR = 6;

    IBV_QP_STATE = 1;
    IBV_QP_ACCESS_FLAGS = 1 << 3;
    IBV_QP_PKEY_INDEX = 1 << 4;
    IBV_QP_PORT = 1 << 5;
    IBV_QP_QKEY = 1 << 6;
    IBV_QP_AV = 1 << 7;
    IBV_QP_PATH_MTU = 1 << 8;
    IBV_QP_TIMEOUT = 1 << 9;
    IBV_QP_RETRY_CNT = 1 << 10;
    IBV_QP_RNR_RETRY = 1 << 11;
    IBV_QP_RQ_PSN = 1 << 12;
    IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13;
    IBV_QP_MIN_RNR_TIMER = 1 << 15;
    IBV_QP_SQ_PSN = 1 << 16;
    IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17;
    IBV_QP_CAP = 1 << 19;
    IBV_QP_DEST_QPN = 1 << 20;

    IBV_WR_RDMA_WRITE = 0;
    IBV_WR_RDMA_WRITE_WITH_IMM = 1;
    IBV_WR_SEND = 2;
    IBV_WR_SEND_WITH_IMM = 3;
    IBV_WR_RDMA_READ = 4;
    IBV_WR_ATOMIC_CMP_AND_SWP = 5;
    IBV_WR_ATOMIC_FETCH_AND_ADD = 6;

    IBV_SEND_FENCE = 1;
    IBV_SEND_SIGNALED = 1 << 1;
    IBV_SEND_SOLICITED = 1 << 2;
    IBV_SEND_INLINE = 1 << 3;

    IBV_WC_SUCCESS = 0;
    IBV_WC_LOC_LEN_ERR = 1;
    IBV_WC_LOC_QP_OP_ERR = 2;
    IBV_WC_LOC_PROT_ERR = 4;
    IBV_WC_WR_FLUSH_ERR = 5;
    IBV_WC_BAD_RESP_ERR = 7;
    IBV_WC_LOC_ACCESS_ERR = 8;
    IBV_WC_REM_INV_REQ_ERR = 9;
    IBV_WC_REM_ACCESS_ERR = 10;
    IBV_WC_REM_OP_ERR = 11;
    IBV_WC_RETRY_EXC_ERR = 12;
    IBV_WC_RNR_RETRY_EXC_ERR = 13;
    IBV_WC_FATAL_ERR = 19;
    IBV_WC_RESP_TIMEOUT_ERR = 20;
    IBV_WC_GENERAL_ERR = 21;

    IBV_WC_SEND = 0;
    IBV_WC_RDMA_WRITE = 1;
    IBV_WC_RDMA_READ = 2;
    IBV_WC_COMP_SWAP = 3;
    IBV_WC_FETCH_ADD = 4;
    IBV_WC_RECV = 1 << 7;
    IBV_WC_RECV_RDMA_WITH_IMM = (1 << 7) + 1;

    IBV_WC_GRH = 1;
    IBV_WC_WITH_IMM = 1 << 1;

    IBV_EVENT_CQ_ERR = 0;
    IBV_EVENT_QP_FATAL = 1;
    IBV_EVENT_QP_REQ_ERR = 2;
    IBV_EVENT_QP_ACCESS_ERR = 3;
    IBV_EVENT_COMM_EST = 4;
    IBV_EVENT_SQ_DRAINED = 5;
    IBV_EVENT_DEVICE_FATAL = 8;
    IBV_EVENT_PORT_ACTIVE = 9;
    IBV_EVENT_PORT_ERR = 10;
    IBV_EVENT_LID_CHANGE = 11;
    IBV_EVENT_PKEY_CHANGE = 12;
    IBV_EVENT_SM_CHANGE = 13;
    IBV_EVENT_SRQ_ERR = 14;
    IBV_EVENT_SRQ_LIMIT_REACHED = 15;
    IBV_EVENT_QP_LAST_WQE_REACHED = 16;
    IBV_EVENT_CLIENT_REREGISTER = 17;
    IBV_EVENT_GID_CHANGE = 18;
}
