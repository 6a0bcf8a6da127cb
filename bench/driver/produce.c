/* Throughput: feed the producers as fast as they take messages, then wait until every one is acknowledged. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "producer.h"

#define CHUNK 200
#define BUFFERED_KBYTES 131072
#define BUFFERED_MESSAGES 500000
#define DRAIN_TIMEOUT_NS (60LL * 1000000000)

/* One feeding thread and the producers it owns. */
struct feeder {
    pthread_t thread;
    const struct options *options;
    const char *pool;
    struct producer *producers;
    int producer_count;
    int64_t quota;    /* messages to send; 0 = until the deadline */
    int64_t deadline; /* 0 = until the quota */
    int64_t sent;
    int next_partition;
    size_t position;
};

static atomic_llong failed;

/* Only failures are reported (delivery.report.only.error): a report for each of millions of messages would make the
 * client the limit. Successes are proven by the empty queue and by the broker's end offsets. */
static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err && atomic_fetch_add(&failed, 1) == 0) {
        fprintf(stderr, "driver: first failed message: %s\n", rd_kafka_err2str(message->err));
    }
}

static int send_chunk(struct feeder *feeder, struct producer *producer) {
    rd_kafka_message_t messages[CHUNK] = {0};
    int count = CHUNK;
    if (feeder->quota && feeder->quota - feeder->sent < count) {
        count = (int)(feeder->quota - feeder->sent);
    }
    for (int i = 0; i < count; i++) {
        /* Without --copy librdkafka neither copies nor frees the message: the pool outlives the client. */
        messages[i].payload = (void *)(feeder->pool + feeder->position);
        messages[i].len = (size_t)feeder->options->size;
        feeder->position = (feeder->position + (size_t)feeder->options->size) % POOL_BYTES;
    }
    int flags = feeder->options->copy ? RD_KAFKA_MSG_F_COPY : 0;
    int taken = rd_kafka_produce_batch(producer->topic, feeder->next_partition, flags, messages, count);
    for (int i = 0; i < count && taken < count; i++) {
        if (messages[i].err && messages[i].err != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
            fail("producing", rd_kafka_err2str(messages[i].err));
        }
    }
    if (taken > 0) {
        feeder->next_partition = (feeder->next_partition + 1) % feeder->options->partitions;
        feeder->sent += taken;
    }
    return taken;
}

static int done(const struct feeder *feeder) {
    return (feeder->quota && feeder->sent >= feeder->quota) ||
           (feeder->deadline && now_ns() >= feeder->deadline);
}

static void drain(struct feeder *feeder) {
    int64_t give_up = now_ns() + DRAIN_TIMEOUT_NS;
    for (int i = 0; i < feeder->producer_count; i++) {
        while (rd_kafka_outq_len(feeder->producers[i].client) > 0) {
            if (now_ns() > give_up) {
                fail("waiting for acknowledgements", "messages were still unacknowledged after 60 s");
            }
            rd_kafka_poll(feeder->producers[i].client, 1);
        }
    }
}

static void *feed(void *argument) {
    struct feeder *feeder = argument;
    int full_in_a_row = 0;
    for (int i = 0; !done(feeder); i = (i + 1) % feeder->producer_count) {
        struct producer *producer = &feeder->producers[i];
        full_in_a_row = send_chunk(feeder, producer) == 0 ? full_in_a_row + 1 : 0;
        /* Sleep only when every producer of this thread is full. */
        int wait_ms = full_in_a_row >= feeder->producer_count ? 1 : 0;
        rd_kafka_poll(producer->client, wait_ms);
    }
    drain(feeder);
    return NULL;
}

static struct producer *open_producers(const struct options *options) {
    struct producer *producers = calloc((size_t)options->handles, sizeof(*producers));
    for (int i = 0; i < options->handles; i++) {
        rd_kafka_conf_t *conf = base_conf(options);
        set_option(conf, "delivery.report.only.error", "true");
        set_number(conf, "queue.buffering.max.messages", BUFFERED_MESSAGES / options->handles);
        set_number(conf, "queue.buffering.max.kbytes", BUFFERED_KBYTES / options->handles);
        producers[i] = open_producer(options, conf, on_delivery, NULL);
    }
    return producers;
}

/* Producers are dealt out in blocks; the count is divided the same way, the first feeder takes the rest. */
static struct feeder *deal(const struct options *options, struct producer *producers, const char *pool, int feeders,
                           int64_t start) {
    struct feeder *all = calloc((size_t)feeders, sizeof(*all));
    int given = 0;
    for (int i = 0; i < feeders; i++) {
        int share = options->handles / feeders + (i < options->handles % feeders ? 1 : 0);
        all[i] = (struct feeder){
            .options = options,
            .pool = pool,
            .producers = producers + given,
            .producer_count = share,
            .quota = options->count / feeders + (i == 0 ? options->count % feeders : 0),
            .deadline = options->seconds > 0 ? start + (int64_t)(options->seconds * 1e9) : 0,
            .next_partition = i % options->partitions,
        };
        given += share;
    }
    return all;
}

static int64_t run_feeders(struct feeder *feeders, int count) {
    for (int i = 0; i < count; i++) {
        pthread_create(&feeders[i].thread, NULL, feed, &feeders[i]);
    }
    int64_t sent = 0;
    for (int i = 0; i < count; i++) {
        pthread_join(feeders[i].thread, NULL);
        sent += feeders[i].sent;
    }
    return sent;
}

int run_produce(const struct options *options) {
    char *pool = new_payload_pool(options->size);
    struct producer *producers = open_producers(options);
    int64_t *offsets = calloc((size_t)options->partitions, sizeof(*offsets));
    list_offsets(producers[0].client, options, -1, offsets);
    int64_t before = sum(offsets, options->partitions);

    int feeder_count = options->feeders < options->handles ? options->feeders : options->handles;
    double cpu = cpu_seconds();
    int64_t start = now_ns();
    struct feeder *feeders = deal(options, producers, pool, feeder_count, start);
    int64_t sent = run_feeders(feeders, feeder_count);
    double seconds = (double)(now_ns() - start) / 1e9;
    cpu = cpu_seconds() - cpu;

    int64_t stored = stored_since(producers[0].client, options, before, sent);
    int64_t errors = atomic_load(&failed);
    printf("{\"messages\": %lld, \"bytes\": %lld, \"seconds\": %.6f, \"errors\": %lld, \"stored\": %lld, "
           "\"client_cpu_seconds\": %.3f}\n",
           (long long)sent, (long long)sent * options->size, seconds, (long long)errors, (long long)stored, cpu);
    for (int i = 0; i < options->handles; i++) {
        close_producer(&producers[i]);
    }
    free(feeders);
    free(producers);
    free(offsets);
    free(pool);
    return errors == 0 && stored == sent ? 0 : 1;
}
