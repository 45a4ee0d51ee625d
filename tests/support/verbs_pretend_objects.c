/* The passive objects of the pretended devices: lists, contexts, domains, channels. */
#include "tests/support/verbs_pretend_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { DEVICES = 2, QUEUE_MAX = VERBS_PRETEND_ENTRIES };

static struct ibv_device devices[DEVICES];

static struct ibv_device **get_devices(int *ret_count)
{
    struct ibv_device **list = calloc(DEVICES + 1, sizeof(struct ibv_device *));
    for (int i = 0; i < DEVICES; i++) {
        list[i] = &devices[i];
    }
    *ret_count = DEVICES;
    return list;
}

static void free_devices(struct ibv_device **list)
{
    free(list);
}

static const char *device_name(struct ibv_device *device)
{
    return device->name;
}

static struct ibv_context *open_device(struct ibv_device *device)
{
    struct ibv_context *context = calloc(1, sizeof *context);
    context->device = device;
    context->async_fd = eventfd(0, EFD_CLOEXEC);
    context->ops = verbs_pretend_ops;
    return context;
}

static int close_device(struct ibv_context *context)
{
    close(context->async_fd);
    free(context);
    return 0;
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *ret_attributes)
{
    (void)context;
    *ret_attributes = (struct ibv_device_attr){
        .phys_port_cnt = 1, .max_cqe = QUEUE_MAX, .max_sge = VERBS_PRETEND_GATHERS};
    return 0;
}

static int query_port(struct ibv_context *context, uint8_t number,
                      struct _compat_ibv_port_attr *ret_attributes)
{
    struct ibv_port_attr *attributes = (struct ibv_port_attr *)ret_attributes;
    (void)context;
    (void)number;
    attributes->state = IBV_PORT_ACTIVE;
    attributes->active_mtu = IBV_MTU_4096;
    attributes->gid_tbl_len = 1;
    attributes->link_layer = IBV_LINK_LAYER_ETHERNET;
    return 0;
}

/* ::ffff:127.0.0.1, where the other end listens. */
static int query_gid(struct ibv_context *context, uint32_t port, uint32_t index,
                     struct ibv_gid_entry *ret_entry, uint32_t flags, size_t size)
{
    static const unsigned char gid[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    (void)context;
    (void)flags;
    (void)size;
    *ret_entry = (struct ibv_gid_entry){
        .gid_index = index, .port_num = port, .gid_type = IBV_GID_TYPE_ROCE_V2};
    memcpy(ret_entry->gid.raw, gid, sizeof gid);
    return 0;
}

static struct ibv_pd *make_domain(struct ibv_context *context)
{
    struct ibv_pd *domain = calloc(1, sizeof *domain);
    domain->context = context;
    return domain;
}

static int free_domain(struct ibv_pd *domain)
{
    free(domain);
    return 0;
}

static struct ibv_comp_channel *make_channel(struct ibv_context *context)
{
    struct ibv_comp_channel *channel = calloc(1, sizeof *channel);
    channel->context = context;
    channel->fd = eventfd(0, EFD_CLOEXEC);
    return channel;
}

static int free_channel(struct ibv_comp_channel *channel)
{
    close(channel->fd);
    free(channel);
    return 0;
}

static int get_event(struct ibv_comp_channel *channel, struct ibv_cq **ret_queue, void **ret_user)
{
    uint64_t events = 0;
    *ret_queue = NULL;
    *ret_user = NULL;
    return read(channel->fd, &events, sizeof events) == (ssize_t)sizeof events ? 0 : -1;
}

static void no_acknowledgement(struct ibv_cq *queue, unsigned int count)
{
    (void)queue;
    (void)count;
}

static int no_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    (void)context;
    (void)event;
    return -1;
}

void verbs_pretend_objects(struct muster_verbs_library *table)
{
    table->get_device_list = get_devices;
    table->free_device_list = free_devices;
    table->get_device_name = device_name;
    table->open_device = open_device;
    table->close_device = close_device;
    table->query_device = query_device;
    table->query_port = query_port;
    table->alloc_pd = make_domain;
    table->dealloc_pd = free_domain;
    table->create_comp_channel = make_channel;
    table->destroy_comp_channel = free_channel;
    table->get_cq_event = get_event;
    table->ack_cq_events = no_acknowledgement;
    table->get_async_event = no_async_event;
    table->query_gid_ex = query_gid;
    for (int i = 0; i < DEVICES; i++) {
        (void)snprintf(devices[i].name, sizeof devices[i].name, "pretend%d", i);
    }
}
