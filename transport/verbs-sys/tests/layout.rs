// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the bindings with `layout.txt`, which has every size, offset and constant as a C compiler computes them
//! from the header. Also compares that file with `infiniband/verbs.h` in the directory `RMPI_VERBS_INCLUDE`.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use verbs_sys::*;

/// One line of `layout.txt`: the C expression, and its value.
type Line = (String, u64);

/// The offsets of fields of a structure.
macro_rules! structure {
    ($lines:ident, $type:ident: $($field:ident)*) => {
        $(
            let name = stringify!($field);
            $lines.push((format!("offsetof(struct {}, {name})", stringify!($type)), offset_of!($type, $field) as u64));
        )*
    };
}

/// The offsets of fields of a structure, and its size.
macro_rules! whole {
    ($lines:ident, $type:ident: $($fields:tt)*) => {
        $lines.push((format!("sizeof(struct {})", stringify!($type)), size_of::<$type>() as u64));
        structure!($lines, $type: $($fields)*);
    };
}

fn bindings() -> Vec<Line> {
    let mut lines = objects();
    lines.extend(attributes());
    lines.extend(requests());
    let gid = size_of::<ibv_gid>() as u64;
    lines.push(("sizeof(union ibv_gid)".into(), gid));
    let align = align_of::<ibv_gid>() as u64;
    lines.push(("_Alignof(union ibv_gid)".into(), align));
    lines.extend(
        NUMBERS
            .iter()
            .map(|(name, value)| ((*name).into(), u64::from(*value))),
    );
    lines
}

/// Objects that the library creates: only the fields that this project reads.
fn objects() -> Vec<Line> {
    let mut lines = Vec::new();
    structure!(lines, ibv_context: device ops cmd_fd async_fd num_comp_vectors);
    whole!(lines, ibv_context_ops: poll_cq req_notify_cq post_srq_recv post_send post_recv);
    structure!(lines, ibv_pd: context handle);
    structure!(lines, ibv_mr: context pd addr length handle lkey rkey);
    structure!(lines, ibv_comp_channel: context fd refcnt);
    structure!(lines, ibv_cq: context channel cq_context handle cqe);
    structure!(lines, ibv_srq: context srq_context pd handle);
    structure!(lines, ibv_qp: context qp_context pd send_cq recv_cq srq handle qp_num state qp_type);
    structure!(lines, ibv_ah: context pd handle);
    lines
}

/// Structures with which objects are created, and results of queries.
fn attributes() -> Vec<Line> {
    let mut lines = Vec::new();
    whole!(lines, ibv_gid_entry: gid gid_index port_num gid_type ndev_ifindex);
    whole!(lines, ibv_device_attr:
        fw_ver node_guid sys_image_guid max_mr_size page_size_cap vendor_id vendor_part_id hw_ver max_qp
        max_qp_wr device_cap_flags max_sge max_sge_rd max_cq max_cqe max_mr max_pd max_qp_rd_atom max_ee_rd_atom
        max_res_rd_atom max_qp_init_rd_atom max_ee_init_rd_atom atomic_cap max_ee max_rdd max_mw max_raw_ipv6_qp
        max_raw_ethy_qp max_mcast_grp max_mcast_qp_attach max_total_mcast_qp_attach max_ah max_fmr
        max_map_per_fmr max_srq max_srq_wr max_srq_sge max_pkeys local_ca_ack_delay phys_port_cnt);
    whole!(lines, ibv_port_attr:
        state max_mtu active_mtu gid_tbl_len port_cap_flags max_msg_sz bad_pkey_cntr qkey_viol_cntr pkey_tbl_len
        lid sm_lid lmc max_vl_num sm_sl subnet_timeout init_type_reply active_width active_speed phys_state
        link_layer flags port_cap_flags2);
    whole!(lines, ibv_global_route: dgid flow_label sgid_index hop_limit traffic_class);
    whole!(lines, ibv_ah_attr: grh dlid sl src_path_bits static_rate is_global port_num);
    whole!(lines, ibv_srq_attr: max_wr max_sge srq_limit);
    whole!(lines, ibv_srq_init_attr: srq_context attr);
    whole!(lines, ibv_qp_cap: max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data);
    whole!(lines, ibv_qp_init_attr: qp_context send_cq recv_cq srq cap qp_type sq_sig_all);
    whole!(lines, ibv_qp_attr:
        qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags cap ah_attr
        alt_ah_attr pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic
        min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout rate_limit);
    lines
}

/// Structures of requests and completions.
fn requests() -> Vec<Line> {
    let mut lines = Vec::new();
    whole!(lines, ibv_sge: addr length lkey);
    whole!(lines, ibv_recv_wr: wr_id next sg_list num_sge);
    whole!(lines, ibv_send_wr: wr_id next sg_list num_sge opcode send_flags imm_data wr);
    let others = offset_of!(ibv_send_wr, others) as u64;
    lines.push(("offsetof(struct ibv_send_wr, qp_type)".into(), others));
    let op = offset_of!(ibv_send_wr, wr) as u64;
    let mut inside = |name: &str, offset: usize| {
        let name = format!("offsetof(struct ibv_send_wr, wr.{name})");
        lines.push((name, op + offset as u64));
    };
    inside(
        "rdma.remote_addr",
        offset_of!(ibv_send_wr_rdma, remote_addr),
    );
    inside("rdma.rkey", offset_of!(ibv_send_wr_rdma, rkey));
    inside(
        "atomic.remote_addr",
        offset_of!(ibv_send_wr_atomic, remote_addr),
    );
    inside(
        "atomic.compare_add",
        offset_of!(ibv_send_wr_atomic, compare_add),
    );
    inside("atomic.swap", offset_of!(ibv_send_wr_atomic, swap));
    inside("atomic.rkey", offset_of!(ibv_send_wr_atomic, rkey));
    inside("ud.ah", offset_of!(ibv_send_wr_ud, ah));
    inside("ud.remote_qpn", offset_of!(ibv_send_wr_ud, remote_qpn));
    inside("ud.remote_qkey", offset_of!(ibv_send_wr_ud, remote_qkey));
    whole!(lines, ibv_wc:
        wr_id status opcode vendor_err byte_len imm_data qp_num src_qp wc_flags pkey_index slid sl dlid_path_bits);
    whole!(lines, ibv_async_event: element event_type);
    lines
}

fn written(lines: &[Line]) -> String {
    lines.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name} = {value}");
        text
    })
}

fn file() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/layout.txt");
    std::fs::read_to_string(path).expect("layout.txt is part of the sources")
}

/// The lines that are in only one of the two texts.
fn difference(ours: &str, theirs: &str) -> String {
    let only = |mark: char, these: &str, those: &str| -> String {
        let lines = these
            .lines()
            .filter(|line| !those.lines().any(|other| other == *line));
        lines.map(|line| format!("{mark} {line}\n")).collect()
    };
    only('-', ours, theirs) + &only('+', theirs, ours)
}

#[test]
fn bindings_match_layout_txt() {
    let (ours, file) = (written(&bindings()), file());
    assert!(
        ours == file,
        "bindings (-), layout.txt (+):\n{}",
        difference(&ours, &file)
    );
}

#[test]
#[ignore = "needs the header of rdma-core; the stage `softroce` has it"]
fn layout_txt_matches_the_installed_header() {
    let include = std::env::var_os("RMPI_VERBS_INCLUDE").expect("the folder of infiniband/verbs.h");
    let prints = bindings()
        .iter()
        .fold(String::new(), |mut text, (name, _)| {
            let _ = writeln!(
                text,
                "    printf(\"%s = %llu\\n\", \"{name}\", (unsigned long long)({name}));"
            );
            text
        });
    let program = format!(
        "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void)\n{{\n{prints}    return 0;\n}}\n"
    );
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program).expect("a folder of this test's own");
    let compiler = Command::new("cc")
        .arg("-I")
        .arg(include)
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .status();
    assert!(compiler.expect("a C compiler").success());
    let printed = Command::new(&binary)
        .output()
        .expect("it was just made")
        .stdout;
    let (header, file) = (String::from_utf8_lossy(&printed), file());
    assert!(
        header == file,
        "header (-), layout.txt (+):\n{}",
        difference(&header, &file)
    );
}
