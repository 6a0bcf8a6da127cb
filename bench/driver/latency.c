/* Latency at a fixed rate: each message has a planned time to be sent, and its latency counts from there, so that a
 * stall of the broker is charged to every message that had to wait for it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "producer.h"

#define WARM_UP_SHARE 10 /* the first tenth of the messages is not counted */

struct timeline {
    int64_t *planned_ns;
    int64_t *latency_ns;
    atomic_llong delivered;
    atomic_llong failed;
    atomic_int stop;
    rd_kafka_t *client;
};

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client;
    struct timeline *timeline = opaque;
    int64_t index = (int64_t)(intptr_t)message->_private;
    if (message->err) {
        atomic_fetch_add(&timeline->failed, 1);
    } else {
        timeline->latency_ns[index] = now_ns() - timeline->planned_ns[index];
    }
    atomic_fetch_add(&timeline->delivered, 1);
}

static void *serve_reports(void *argument) {
    struct timeline *timeline = argument;
    while (!atomic_load(&timeline->stop)) {
        rd_kafka_poll(timeline->client, 50);
    }
    return NULL;
}

static void sleep_until(int64_t when_ns) {
    struct timespec when = {.tv_sec = when_ns / 1000000000, .tv_nsec = when_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) != 0) {
    }
}

static void send_all(const struct options *options, struct producer *producer, struct timeline *timeline, char *pool,
                     int64_t count) {
    int64_t start = now_ns();
    for (int64_t i = 0; i < count; i++) {
        timeline->planned_ns[i] = start + (int64_t)((double)i * 1e9 / options->rate);
        sleep_until(timeline->planned_ns[i]);
        size_t position = ((size_t)i * (size_t)options->size) % POOL_BYTES;
        if (rd_kafka_produce(producer->topic, (int32_t)(i % options->partitions), 0, pool + position,
                             (size_t)options->size, NULL, 0, (void *)(intptr_t)i) != 0) {
            fail("producing", rd_kafka_err2str(rd_kafka_last_error()));
        }
    }
    int64_t give_up = now_ns() + REQUEST_TIMEOUT_MS * 1000000LL;
    while (atomic_load(&timeline->delivered) < count) {
        if (now_ns() > give_up) {
            fail("waiting for acknowledgements", "messages were still unacknowledged after 30 s");
        }
        sleep_until(now_ns() + 1000000);
    }
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double percentile_ms(const int64_t *sorted, int64_t count, double share) {
    int64_t index = (int64_t)(share * (double)count);
    return (double)sorted[index < count ? index : count - 1] / 1e6;
}

static void print_latency(int64_t *latency_ns, int64_t count) {
    qsort(latency_ns, (size_t)count, sizeof(*latency_ns), ascending);
    printf("\"latency_ms\": {\"p50\": %.4f, \"p90\": %.4f, \"p99\": %.4f, \"p999\": %.4f, \"max\": %.4f}",
           percentile_ms(latency_ns, count, 0.50), percentile_ms(latency_ns, count, 0.90),
           percentile_ms(latency_ns, count, 0.99), percentile_ms(latency_ns, count, 0.999),
           percentile_ms(latency_ns, count, 1.0));
}

int run_latency(const struct options *options) {
    int64_t count = options->count > 0 ? options->count : (int64_t)(options->seconds * options->rate);
    struct timeline timeline = {
        .planned_ns = calloc((size_t)count, sizeof(int64_t)),
        .latency_ns = calloc((size_t)count, sizeof(int64_t)),
    };
    char *pool = new_payload_pool(options->size);
    struct producer producer = open_producer(options, base_conf(options), on_delivery, &timeline);
    timeline.client = producer.client;
    int64_t *offsets = calloc((size_t)options->partitions, sizeof(*offsets));
    list_offsets(producer.client, options, -1, offsets);
    int64_t before = sum(offsets, options->partitions);

    pthread_t reports;
    pthread_create(&reports, NULL, serve_reports, &timeline);
    double cpu = cpu_seconds();
    int64_t start = now_ns();
    send_all(options, &producer, &timeline, pool, count);
    double seconds = (double)(now_ns() - start) / 1e9;
    cpu = cpu_seconds() - cpu;
    atomic_store(&timeline.stop, 1);
    pthread_join(reports, NULL);

    int64_t stored = stored_since(producer.client, options, before, count);
    int64_t errors = atomic_load(&timeline.failed);
    printf("{\"messages\": %lld, \"bytes\": %lld, \"seconds\": %.6f, \"errors\": %lld, \"stored\": %lld, "
           "\"client_cpu_seconds\": %.3f, ",
           (long long)count, (long long)count * options->size, seconds, (long long)errors, (long long)stored, cpu);
    int64_t warm_up = count / WARM_UP_SHARE;
    print_latency(timeline.latency_ns + warm_up, count - warm_up);
    printf("}\n");
    close_producer(&producer);
    free(timeline.planned_ns);
    free(timeline.latency_ns);
    free(offsets);
    free(pool);
    return errors == 0 && stored == count ? 0 : 1;
}
