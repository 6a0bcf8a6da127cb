#include "producer.h"

#include <stdlib.h>

struct producer open_producer(const struct options *options, rd_kafka_conf_t *conf, delivery_callback *delivered,
                              void *opaque) {
    set_option(conf, "acks", options->acks);
    set_option(conf, "compression.codec", options->codec);
    set_option(conf, "enable.idempotence", options->idempotence ? "true" : "false");
    set_number(conf, "linger.ms", options->linger_ms);
    set_number(conf, "batch.size", options->batch_bytes);
    rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    rd_kafka_conf_set_opaque(conf, opaque);

    struct producer producer;
    producer.client = new_client(RD_KAFKA_PRODUCER, conf);
    producer.topic = rd_kafka_topic_new(producer.client, options->topic, NULL);
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t err =
        rd_kafka_metadata(producer.client, 0, producer.topic, &metadata, REQUEST_TIMEOUT_MS);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        fail("asking for the topic's metadata", rd_kafka_err2str(err));
    }
    if (metadata->topic_cnt != 1 || metadata->topics[0].partition_cnt != options->partitions) {
        fail("asking for the topic's metadata", "the topic has another number of partitions than --partitions");
    }
    rd_kafka_metadata_destroy(metadata);
    return producer;
}

void close_producer(struct producer *producer) {
    rd_kafka_topic_destroy(producer->topic);
    rd_kafka_destroy(producer->client);
}

char *new_payload_pool(int message_size) {
    size_t size = POOL_BYTES + (size_t)message_size;
    char *pool = malloc(size);
    if (pool == NULL) {
        fail("allocating the messages", "out of memory");
    }
    uint64_t state = 0x9e3779b97f4a7c15;
    for (size_t i = 0; i < size; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        pool[i] = "0123456789abcdef"[state >> 60];
    }
    return pool;
}
