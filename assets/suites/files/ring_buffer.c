#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    unsigned char *data;
    size_t capacity;
    size_t head;
    size_t tail;
    bool full;
} ring_t;

ring_t *ring_new(size_t capacity)
{
    ring_t *ring = malloc(sizeof(ring_t));
    ring->data = malloc(capacity);
    ring->capacity = capacity;
    ring->head = 0;
    ring->tail = 0;
    ring->full = false;
    return ring;
}

void ring_free(ring_t *ring)
{
    free(ring->data);
    free(ring);
}

size_t ring_size(const ring_t *ring)
{
    if (ring->full)
        return ring->capacity;
    if (ring->head >= ring->tail)
        return ring->head - ring->tail;
    return ring->capacity + ring->head - ring->tail;
}

bool ring_put(ring_t *ring, unsigned char byte)
{
    if (ring->full)
        return false;
    ring->data[ring->head] = byte;
    ring->head = (ring->head + 1) % ring->capacity;
    ring->full = ring->head == ring->tail;
    return true;
}

bool ring_get(ring_t *ring, unsigned char *byte)
{
    if (ring_size(ring) == 0)
        return false;
    *byte = ring->data[ring->tail];
    ring->tail = (ring->tail + 1) % ring->capacity;
    ring->full = false;
    return true;
}

void ring_clear(ring_t *ring)
{
    ring->head = 0;
    ring->tail = 0;
    ring->full = false;
    memset(ring->data, 0, ring->capacity);
}
