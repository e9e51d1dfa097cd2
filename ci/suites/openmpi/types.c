// SPDX-License-Identifier: MIT OR Apache-2.0
// Debug information of the types that Open MPI's debugger library needs, from the headers of the distribution's build
// (libopenmpi-dev): its libraries are stripped, and its packages with debug information are on a separate server.
#include "ompi_config.h"

#include "ompi/communicator/communicator.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/group/group.h"
#include "ompi/mca/pml/base/pml_base_recvreq.h"
#include "ompi/mca/pml/base/pml_base_request.h"
#include "ompi/mca/pml/base/pml_base_sendreq.h"
#include "ompi/mca/topo/topo.h"
#include "ompi/request/request.h"
#include "opal/class/opal_free_list.h"
#include "opal/class/opal_hash_table.h"
#include "opal/class/opal_list.h"
#include "opal/class/opal_pointer_array.h"
#include "opal/datatype/opal_datatype.h"

// The compiler emits no debug information for unused types.
#define KEEP(type) type *keep_##type

KEEP(opal_list_item_t);
KEEP(opal_list_t);
KEEP(opal_free_list_item_t);
KEEP(opal_free_list_t);
KEEP(opal_hash_table_t);
KEEP(opal_pointer_array_t);
KEEP(opal_datatype_t);
KEEP(ompi_request_t);
KEEP(ompi_communicator_t);
KEEP(ompi_group_t);
KEEP(ompi_datatype_t);
KEEP(ompi_status_public_t);
KEEP(mca_pml_base_request_t);
KEEP(mca_pml_base_send_request_t);
KEEP(mca_pml_base_recv_request_t);
KEEP(mca_topo_base_module_t);
KEEP(mca_topo_base_comm_cart_2_2_0_t);
KEEP(mca_topo_base_comm_graph_2_2_0_t);
KEEP(mca_topo_base_comm_dist_graph_2_2_0_t);
