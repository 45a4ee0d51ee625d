/* An RDMA device: found, opened, its completion queue and its registrations. */
#include "worker/fabric/verbs/verbs_device.h"

#include "worker/base/cleanup.h"
#include "worker/trace/timeline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { QUEUE_ENTRIES = 8192 }; /* completions of all links; further links use another transport */

/* Finding -------------------------------------------------------------------------------------- */

static void read_gids(const struct muster_verbs_library *library, struct ibv_context *context,
                      int table_size, struct muster_verbs_port *port)
{
    for (int i = 0; i < table_size && port->gid_count < MUSTER_VERBS_GIDS_MAX; i++) {
        struct ibv_gid_entry entry = {0};
        if (library->query_gid_ex(context, port->number, (uint32_t)i, &entry, 0, sizeof entry) !=
            0) {
            continue; /* an empty entry of the table */
        }
        struct muster_verbs_gid *gid = &port->gids[port->gid_count++];
        gid->index = (uint32_t)i;
        gid->type = entry.gid_type == IBV_GID_TYPE_ROCE_V2   ? MUSTER_VERBS_ROCE_2
                    : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? MUSTER_VERBS_ROCE_1
                                                             : MUSTER_VERBS_INFINIBAND;
        memcpy(gid->bytes, entry.gid.raw, sizeof gid->bytes);
    }
}

static muster_status query_port(const struct muster_verbs_library *library,
                                struct ibv_context *context, uint32_t number,
                                struct ibv_port_attr *ret_attributes)
{
    memset(ret_attributes, 0, sizeof *ret_attributes);
    /* The symbol fills the fields of the old structure, which are all that is used here. */
    int error = library->query_port(context, (uint8_t)number,
                                    (struct _compat_ibv_port_attr *)ret_attributes);
    return error == 0 ? MUSTER_OK
                      : muster_error_set(MUSTER_INVALID, "its port %u: %s", number,
                                         strerror(error > 0 ? error : errno));
}

static void read_device(const struct muster_verbs_library *library, struct ibv_device *device,
                        struct muster_verbs_ports *ports)
{
    struct ibv_device_attr attributes = {0};
    struct ibv_context *context = library->open_device(device);
    if (context == NULL) {
        return; /* it may belong to another container */
    }
    int count = library->query_device(context, &attributes) == 0 ? attributes.phys_port_cnt : 0;
    for (int i = 1; i <= count && ports->count < MUSTER_VERBS_PORTS_MAX; i++) {
        struct ibv_port_attr attr;
        struct muster_verbs_port port = {.number = (uint32_t)i};
        if (query_port(library, context, port.number, &attr) == MUSTER_OK) {
            (void)snprintf(port.device, sizeof port.device, "%s", library->get_device_name(device));
            (void)snprintf(port.state, sizeof port.state, "%s",
                           library->port_state_str(attr.state));
            port.active = attr.state == IBV_PORT_ACTIVE;
            read_gids(library, context, attr.gid_tbl_len, &port);
            ports->all[ports->count++] = port;
        }
    }
    (void)library->close_device(context);
}

muster_status muster_verbs_ports_read(const struct muster_verbs_library *library,
                                      struct muster_verbs_ports *ret_ports)
{
    int count = 0;
    struct ibv_device **devices = library->get_device_list(&count);
    memset(ret_ports, 0, sizeof *ret_ports);
    if (devices == NULL) {
        return muster_error_set(MUSTER_INVALID,
                                "the RDMA devices of this machine cannot be listed: %s%s",
                                strerror(errno), errno == ENOSYS ? " (modprobe ib_uverbs)" : "");
    }
    for (int i = 0; i < count; i++) {
        read_device(library, devices[i], ret_ports);
    }
    library->free_device_list(devices);
    return MUSTER_OK;
}

/* Opening -------------------------------------------------------------------------------------- */

static muster_status open_named(struct muster_verbs_device *device)
{
    int count = 0;
    struct ibv_device **devices = device->library->get_device_list(&count);
    for (int i = 0; devices != NULL && i < count; i++) {
        if (device->context == NULL &&
            strcmp(device->library->get_device_name(devices[i]), device->name) == 0) {
            device->context = device->library->open_device(devices[i]);
        }
    }
    if (devices != NULL) {
        device->library->free_device_list(devices);
    }
    return device->context != NULL
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID, "it cannot be opened: %s", strerror(errno));
}

static uint32_t min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Creates the protection domain, the event channel and the completion queue. */
static muster_status make_queue(struct muster_verbs_device *device)
{
    struct ibv_device_attr attributes = {0};
    if (device->library->query_device(device->context, &attributes) != 0) {
        return muster_error_errno(MUSTER_INVALID, "its attributes cannot be read");
    }
    device->queue_entries = min(QUEUE_ENTRIES, (uint32_t)attributes.max_cqe);
    device->gathers_max = min(MUSTER_VERBS_GATHERS_MAX, (uint32_t)attributes.max_sge);
    if (device->gathers_max < MUSTER_VERBS_GATHERS_MIN) {
        device->gathers_max =
            MUSTER_VERBS_GATHERS_MIN; /* the queue pair says whether that is true */
    }
    device->domain = device->library->alloc_pd(device->context);
    device->channel = device->library->create_comp_channel(device->context);
    if (device->domain == NULL || device->channel == NULL) {
        return muster_error_errno(MUSTER_INVALID, "a protection domain");
    }
    device->queue = device->library->create_cq(device->context, (int)device->queue_entries, NULL,
                                               device->channel, 0);
    if (device->queue == NULL) {
        return muster_error_errno(MUSTER_INVALID, "a completion queue");
    }
    /* Events are polled, never waited for. */
    if (fcntl(device->channel->fd, F_SETFL, O_NONBLOCK) != 0 ||
        fcntl(device->context->async_fd, F_SETFL, O_NONBLOCK) != 0) {
        return muster_error_errno(MUSTER_INVALID, "its events");
    }
    return MUSTER_OK;
}

static void add_span(const struct muster_verbs_device *device, enum muster_timeline_stage stage,
                     int64_t started_ns, size_t size_bytes)
{
    muster_timeline_add_local(device->timeline, stage, started_ns, size_bytes,
                              (struct muster_timeline_operation){.sequence = 0});
}

/* Registers users' memory, which the device only reads: it may be read-only. */
static void *add_registration(void *owner, const struct muster_device_memory *memory, void *base,
                              size_t size_bytes)
{
    struct muster_verbs_device *device = owner;
    int64_t started_ns = muster_timeline_clock(device->timeline);
    struct ibv_mr *registered =
        memory != NULL ? muster_verbs_register_device_memory(device, memory, base, size_bytes)
                       : device->library->reg_mr(device->domain, base, size_bytes, 0);
    int error = errno;
    add_span(device, MUSTER_TIMELINE_REGISTER, started_ns, size_bytes);
    errno = error;
    return registered;
}

static void remove_registration(void *owner, void *handle)
{
    const struct muster_verbs_device *device = owner;
    size_t size_bytes = ((const struct ibv_mr *)handle)->length;
    int64_t started_ns = muster_timeline_clock(device->timeline);
    (void)device->library->dereg_mr(handle);
    add_span(device, MUSTER_TIMELINE_DEREGISTER, started_ns, size_bytes);
}

static muster_status make_registrations(struct muster_verbs_device *device)
{
    const struct muster_registrar registrar = {.device = device,
                                               .add = add_registration,
                                               .remove = remove_registration,
                                               .unmap_watch = &muster_unmap_watch_ops};
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    uint64_t memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    device->registrations = muster_registrations_create(
        &registrar,
        muster_registrations_bound(limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur,
                                   memory_bytes));
    return device->registrations != NULL ? MUSTER_OK
                                         : muster_error_set(MUSTER_FATAL, "out of memory");
}

static muster_status open_chosen(struct muster_verbs_device *device)
{
    struct ibv_port_attr attributes;
    TRY(open_named(device));
    TRY(query_port(device->library, device->context, device->port, &attributes));
    device->ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    device->lid = attributes.lid;
    device->mtu = attributes.active_mtu;
    TRY(make_queue(device));
    return make_registrations(device);
}

muster_status muster_verbs_device_open(const struct muster_verbs_selection *selection,
                                       struct muster_verbs_device *device)
{
    const struct muster_verbs_port *port = NULL;
    const struct muster_verbs_gid *gid = NULL;
    TRY(muster_verbs_library_load(&device->library));
    AUTO_FREE struct muster_verbs_ports *ports = calloc(1, sizeof *ports);
    if (ports == NULL) {
        return muster_error_set(MUSTER_FATAL, "out of memory");
    }
    TRY(muster_verbs_ports_read(device->library, ports));
    TRY(muster_verbs_choose(ports, selection, &port, &gid));
    memcpy(device->name, port->device, sizeof device->name);
    device->port = (uint8_t)port->number;
    device->gid = *gid;
    muster_status status = open_chosen(device);
    if (status != MUSTER_OK) {
        muster_verbs_device_close(device);
        return muster_error_prefix(status, "RDMA device %s", device->name);
    }
    return MUSTER_OK;
}

muster_status muster_verbs_check_port(const struct muster_verbs_device *device)
{
    struct ibv_port_attr attributes;
    muster_status status = query_port(device->library, device->context, device->port, &attributes);
    if (status == MUSTER_OK && attributes.state != IBV_PORT_ACTIVE) {
        status = muster_error_set(MUSTER_INVALID, "its port %u is %s", device->port,
                                  device->library->port_state_str(attributes.state));
    }
    return status == MUSTER_OK ? MUSTER_OK
                               : muster_error_prefix(status, "RDMA device %s", device->name);
}

/* In the reverse order of creation: the device refuses to free what is in use. */
void muster_verbs_device_close(struct muster_verbs_device *device)
{
    const struct muster_verbs_library *library = device->library;
    if (device->registrations != NULL) {
        muster_registrations_destroy(device->registrations);
    }
    if (device->queue != NULL) {
        (void)library->destroy_cq(device->queue);
    }
    if (device->channel != NULL) {
        (void)library->destroy_comp_channel(device->channel);
    }
    if (device->domain != NULL) {
        (void)library->dealloc_pd(device->domain);
    }
    if (device->context != NULL) {
        (void)library->close_device(device->context);
    }
    device->registrations = NULL;
    device->queue = NULL;
    device->channel = NULL;
    device->domain = NULL;
    device->context = NULL;
}

muster_status muster_verbs_register(const struct muster_verbs_device *device, void *memory,
                                    size_t size_bytes, bool remote, struct ibv_mr **ret_registered)
{
    const int access = IBV_ACCESS_LOCAL_WRITE | (remote ? IBV_ACCESS_REMOTE_WRITE : 0);
    struct rlimit limit = {0};
    struct ibv_mr *registered = device->library->reg_mr(device->domain, memory, size_bytes, access);
    if (registered != NULL) {
        *ret_registered = registered;
        return MUSTER_OK;
    }
    int error = errno;
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    if (error == ENOMEM && limit.rlim_cur != RLIM_INFINITY) {
        return muster_error_set(
            MUSTER_FATAL,
            "%zu bytes cannot be registered with %s: this process may lock %llu "
            "KiB of memory (ulimit -l; raise it in /etc/security/limits.d, "
            "LimitMEMLOCK= of a unit, --ulimit memlock=-1 of a container)",
            size_bytes, device->name, (unsigned long long)limit.rlim_cur / 1024);
    }
    return muster_error_set(MUSTER_FATAL, "%zu bytes cannot be registered with %s: %s", size_bytes,
                            device->name, strerror(error));
}
