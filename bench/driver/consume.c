/* Throughput of reading: every partition from its start to the end it had when the run began. */
#include <stdio.h>
#include <stdlib.h>

#include "client.h"

#define STALL_TIMEOUT_NS (30LL * 1000000000)

struct reader {
    int partitions;
    int64_t *next; /* the offset that must come next, for each partition */
    int64_t *end;
    int64_t messages;
    int64_t bytes;
    int64_t errors;
    int unfinished; /* partitions of this pass that have not reached their end */
};

static void on_message(rd_kafka_message_t *message, void *opaque) {
    struct reader *reader = opaque;
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        return;
    }
    if (message->err) {
        if (reader->errors++ == 0) {
            fprintf(stderr, "driver: first failed message: %s\n", rd_kafka_message_errstr(message));
        }
        return;
    }
    int p = message->partition;
    if (message->offset >= reader->end[p]) {
        return;
    }
    if (message->offset != reader->next[p]) {
        if (reader->errors++ == 0) {
            fprintf(stderr, "driver: partition %d: expected offset %lld, got %lld\n", p, (long long)reader->next[p],
                    (long long)message->offset);
        }
    }
    reader->next[p] = message->offset + 1;
    reader->messages++;
    reader->bytes += (int64_t)message->len;
    if (reader->next[p] == reader->end[p]) {
        reader->unfinished--;
    }
}

static void read_once(struct reader *reader, rd_kafka_topic_t *topic, rd_kafka_queue_t *queue,
                      const int64_t *start_offsets) {
    reader->unfinished = 0;
    for (int p = 0; p < reader->partitions; p++) {
        reader->next[p] = start_offsets[p];
        if (start_offsets[p] == reader->end[p]) {
            continue;
        }
        reader->unfinished++;
        if (rd_kafka_consume_start_queue(topic, p, start_offsets[p], queue) != 0) {
            fail("starting to consume", rd_kafka_err2str(rd_kafka_last_error()));
        }
    }
    int64_t last_progress = now_ns();
    while (reader->unfinished > 0) {
        int64_t had = reader->messages;
        rd_kafka_consume_callback_queue(queue, 100, on_message, reader);
        if (reader->messages > had) {
            last_progress = now_ns();
        } else if (now_ns() - last_progress > STALL_TIMEOUT_NS) {
            fail("consuming", "no message arrived for 30 s");
        }
    }
}

static void stop(struct reader *reader, rd_kafka_topic_t *topic, const int64_t *start_offsets) {
    for (int p = 0; p < reader->partitions; p++) {
        if (start_offsets[p] != reader->end[p]) {
            rd_kafka_consume_stop(topic, p);
        }
    }
}

static rd_kafka_conf_t *consumer_conf(const struct options *options) {
    rd_kafka_conf_t *conf = base_conf(options);
    /* Deep queues, so that fetching never pauses for the application. */
    set_option(conf, "queued.min.messages", "1000000");
    set_option(conf, "queued.max.messages.kbytes", "131072");
    set_option(conf, "fetch.wait.max.ms", "100");
    return conf;
}

int run_consume(const struct options *options) {
    size_t partitions = (size_t)options->partitions;
    struct reader reader = {
        .partitions = options->partitions,
        .next = calloc(partitions, sizeof(int64_t)),
        .end = calloc(partitions, sizeof(int64_t)),
    };
    int64_t *start_offsets = calloc(partitions, sizeof(int64_t));
    rd_kafka_t *client = new_client(RD_KAFKA_CONSUMER, consumer_conf(options));
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, options->topic, NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    list_offsets(client, options, -2, start_offsets);
    list_offsets(client, options, -1, reader.end);
    int64_t stored = (sum(reader.end, reader.partitions) - sum(start_offsets, reader.partitions)) * options->passes;

    double cpu = cpu_seconds();
    double seconds = 0;
    for (int pass = 0; pass < options->passes; pass++) {
        int64_t start = now_ns();
        read_once(&reader, topic, queue, start_offsets);
        seconds += (double)(now_ns() - start) / 1e9;
        stop(&reader, topic, start_offsets);
    }
    cpu = cpu_seconds() - cpu;
    printf("{\"messages\": %lld, \"bytes\": %lld, \"seconds\": %.6f, \"errors\": %lld, \"stored\": %lld, "
           "\"client_cpu_seconds\": %.3f}\n",
           (long long)reader.messages, (long long)reader.bytes, seconds, (long long)reader.errors, (long long)stored,
           cpu);
    rd_kafka_queue_destroy(queue);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(client);
    free(reader.next);
    free(reader.end);
    free(start_offsets);
    return reader.errors == 0 && reader.messages == stored ? 0 : 1;
}
