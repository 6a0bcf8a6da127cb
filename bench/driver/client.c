#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

void fail(const char *what, const char *why) {
    fprintf(stderr, "driver: %s: %s\n", what, why);
    exit(1);
}

void set_option(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[512];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof(why)) != RD_KAFKA_CONF_OK) {
        fail(name, why);
    }
}

void set_number(rd_kafka_conf_t *conf, const char *name, double value) {
    char text[64];
    snprintf(text, sizeof(text), "%.10g", value);
    set_option(conf, name, text);
}

rd_kafka_conf_t *base_conf(const struct options *options) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set_option(conf, "bootstrap.servers", options->bootstrap);
    /* The Java client's default. With Nagle's algorithm a second small request waits for a delayed TCP ack. */
    set_option(conf, "socket.nagle.disable", "true");
    set_option(conf, "client.id", "millstream-bench");
    return conf;
}

rd_kafka_t *new_client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char why[512];
    rd_kafka_t *client = rd_kafka_new(type, conf, why, sizeof(why));
    if (client == NULL) {
        fail("creating a client", why);
    }
    return client;
}

/* One request for each leader; a timestamp of -1 or -2 asks for the log end or start. The first error, of all or of one partition. */
static rd_kafka_resp_err_t try_to_list_offsets(
    rd_kafka_t *client, const struct options *options, int64_t which, int64_t *offsets
) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(options->partitions);
    for (int p = 0; p < options->partitions; p++) {
        rd_kafka_topic_partition_list_add(list, options->topic, p)->offset = which;
    }
    rd_kafka_resp_err_t err = rd_kafka_offsets_for_times(client, list, REQUEST_TIMEOUT_MS);
    for (int p = 0; p < options->partitions && err == RD_KAFKA_RESP_ERR_NO_ERROR; p++) {
        err = list->elems[p].err;
        offsets[list->elems[p].partition] = list->elems[p].offset;
    }
    rd_kafka_topic_partition_list_destroy(list);
    return err;
}

void list_offsets(rd_kafka_t *client, const struct options *options, int64_t which, int64_t *offsets) {
    int64_t give_up = now_ns() + REQUEST_TIMEOUT_MS * 1000000LL;
    rd_kafka_resp_err_t err;
    /* A leader may have moved since the client last heard: it asks for metadata and is told the new one. */
    while ((err = try_to_list_offsets(client, options, which, offsets)) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        if (now_ns() > give_up) {
            fail("listing offsets", rd_kafka_err2str(err));
        }
        struct timespec pause = {.tv_nsec = 100000000};
        nanosleep(&pause, NULL);
    }
}

int64_t sum(const int64_t *values, int count) {
    int64_t total = 0;
    for (int i = 0; i < count; i++) {
        total += values[i];
    }
    return total;
}

int64_t stored_since(rd_kafka_t *client, const struct options *options, int64_t before, int64_t expected) {
    int64_t *offsets = calloc((size_t)options->partitions, sizeof(*offsets));
    int64_t give_up = now_ns() + REQUEST_TIMEOUT_MS * 1000000LL;
    int64_t stored;
    for (;;) {
        list_offsets(client, options, -1, offsets);
        stored = sum(offsets, options->partitions) - before;
        if (stored >= expected || now_ns() > give_up) {
            break;
        }
        struct timespec pause = {.tv_nsec = 5000000};
        nanosleep(&pause, NULL);
    }
    free(offsets);
    return stored;
}

int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}
