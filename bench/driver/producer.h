/* The parts that the throughput and the latency load share. */
#ifndef BENCH_PRODUCER_H
#define BENCH_PRODUCER_H

#include <stdatomic.h>

#include "client.h"

struct producer {
    rd_kafka_t *client;
    rd_kafka_topic_t *topic;
};

typedef void delivery_callback(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque);

/* Connects and learns the topic's leaders, so that the load starts warm. */
struct producer open_producer(const struct options *options, rd_kafka_conf_t *conf, delivery_callback *delivered,
                              void *opaque);
void close_producer(struct producer *producer);

/* Text of random hexadecimal digits; messages are slices of it and compress about two to one. */
#define POOL_BYTES (4 << 20)
char *new_payload_pool(int message_size);

#endif
