/* The addresses of this host, read from the kernel. */
#ifndef MUSTER_WORKER_FABRIC_ADDRESS_HOST_ADDRESSES_H
#define MUSTER_WORKER_FABRIC_ADDRESS_HOST_ADDRESSES_H

#include "worker/fabric/address/address_choice.h"

/* The addresses of interfaces that are up, in the kernel's order, at most
 * MUSTER_HOST_ADDRESSES_MAX. */
MUSTER_CHECKED muster_status muster_host_addresses_read(struct muster_host_addresses *ret_here);

#endif
