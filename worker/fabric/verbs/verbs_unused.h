/* RDMA devices that are active and not used, because nobody has set MUSTER_VERBS. */
#ifndef MUSTER_WORKER_FABRIC_VERBS_VERBS_UNUSED_H
#define MUSTER_WORKER_FABRIC_VERBS_VERBS_UNUSED_H

#include <stdbool.h>
#include <stddef.h>

/* A slot: link.h. */
bool muster_verbs_find_unused(char *ret_text, size_t size);

/* Lists the active ports of a folder that is arranged as /sys/class/infiniband, in the order of
 * their names: "mlx5_0 port 1, mlx5_1 port 1", cut after the last that fits. False: there are none,
 * and nothing is written. Loads no library, so it costs nothing where there is no device. */
bool muster_verbs_list_active(const char *folder, char *ret_list, size_t size);

#endif
