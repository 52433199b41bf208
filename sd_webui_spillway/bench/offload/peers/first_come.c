/* First-come spill as a pluggable allocator for torch: device memory up to a budget, mapped pinned memory after it.
 *
 * What a driver's fallback does, without the driver: whatever is allocated last goes to system memory, activations
 * included. cudaMalloc and cudaHostAlloc only; managed memory is never used. Freed blocks are kept and given out again
 * to the same stream's work in order, as torch's own allocator does, so that a step calls the driver for nothing.
 *
 * The runtime's functions are handed over at run time, so that no CUDA header and no CUDA library is needed to build.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <pthread.h>

#define MAPPED 0x02u   /* cudaHostAllocMapped */
#define PORTABLE 0x01u /* cudaHostAllocPortable */
#define ROUND 512u     /* torch's own smallest block */
#define TABLE 65536u

typedef int (*take_device)(void **, size_t);
typedef int (*take_host)(void **, size_t, unsigned);
typedef int (*host_address)(void **, void *, unsigned);
typedef int (*give_back)(void *);

typedef struct {
    void *address; /* the device's view */
    void *host;    /* NULL for device memory */
    size_t size;
    int in_use;
} block;

static take_device cuda_malloc;
static take_host cuda_host_alloc;
static host_address cuda_host_address;
static give_back cuda_free, cuda_free_host;
static block blocks[TABLE];
static size_t count;
static size_t budget = SIZE_MAX, held_device, held_host, peak_device, peak_host;
static size_t used, peak_used; /* device bytes in use */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void spill_init(void *malloc_, void *host_alloc, void *host_address_, void *free_, void *free_host) {
    cuda_malloc = (take_device)malloc_;
    cuda_host_alloc = (take_host)host_alloc;
    cuda_host_address = (host_address)host_address_;
    cuda_free = (give_back)free_;
    cuda_free_host = (give_back)free_host;
}

static void drop(size_t index) {
    if (blocks[index].host) {
        cuda_free_host(blocks[index].host);
        held_host -= blocks[index].size;
    } else {
        cuda_free(blocks[index].address);
        held_device -= blocks[index].size;
    }
    blocks[index] = blocks[--count];
}

static void drop_unused(int host_too) {
    for (size_t i = count; i-- > 0;)
        if (!blocks[i].in_use && (host_too || !blocks[i].host)) drop(i);
}

void spill_trim(void) {
    pthread_mutex_lock(&lock);
    drop_unused(1);
    pthread_mutex_unlock(&lock);
}

void spill_set_budget(size_t bytes) {
    pthread_mutex_lock(&lock);
    budget = bytes;
    pthread_mutex_unlock(&lock);
}

void spill_reset_peak(void) {
    pthread_mutex_lock(&lock);
    peak_device = held_device;
    peak_host = held_host;
    peak_used = used;
    pthread_mutex_unlock(&lock);
}

size_t spill_peak_device(void) { return peak_device; }
size_t spill_peak_host(void) { return peak_host; }
size_t spill_peak_used(void) { return peak_used; }

/* The smallest unused block that fits and wastes no more than this. */
static block *unused(size_t size, int host, size_t waste) {
    block *best = NULL;
    for (size_t i = 0; i < count; i++) {
        block *one = &blocks[i];
        if (one->in_use || (one->host != NULL) != host || one->size < size || one->size - size > waste) continue;
        if (!best || one->size < best->size) best = one;
    }
    return best;
}

static int fits(size_t size) { return held_device <= budget && size <= budget - held_device; }

static block *added(void *address, void *host, size_t size) {
    block *one = &blocks[count++];
    one->address = address;
    one->host = host;
    one->size = size;
    if (host) {
        held_host += size;
        if (held_host > peak_host) peak_host = held_host;
    } else {
        held_device += size;
        if (held_device > peak_device) peak_device = held_device;
    }
    return one;
}

static block *from_device(size_t size) {
    void *address = NULL;
    if (!fits(size)) drop_unused(0);
    return !fits(size) || cuda_malloc(&address, size) ? NULL : added(address, NULL, size);
}

static block *from_host(size_t size) {
    void *host = NULL, *address = NULL;
    if (cuda_host_alloc(&host, size, MAPPED | PORTABLE)) return NULL;
    if (cuda_host_address(&address, host, 0)) {
        cuda_free_host(host);
        return NULL;
    }
    return added(address, host, size);
}

void *spill_malloc(ptrdiff_t asked, int device, void *stream) {
    size_t size = ((size_t)asked + ROUND - 1) / ROUND * ROUND;
    block *one = NULL;
    (void)device;
    (void)stream;
    if (asked <= 0) return NULL;
    pthread_mutex_lock(&lock);
    if (count < TABLE) {
        one = unused(size, 0, size / 8);
        if (!one && !fits(size)) one = unused(size, 0, SIZE_MAX);
        if (!one) one = from_device(size);
        if (!one) one = unused(size, 1, size / 8);
        if (!one) one = from_host(size);
    }
    if (one) {
        one->in_use = 1;
        if (!one->host) used += one->size;
        if (used > peak_used) peak_used = used;
    }
    pthread_mutex_unlock(&lock);
    return one ? one->address : NULL;
}

void spill_free(void *address, ptrdiff_t size, int device, void *stream) {
    (void)size;
    (void)device;
    (void)stream;
    pthread_mutex_lock(&lock);
    for (size_t i = count; i-- > 0;)
        if (blocks[i].address == address && blocks[i].in_use) {
            blocks[i].in_use = 0;
            if (!blocks[i].host) used -= blocks[i].size;
            break;
        }
    pthread_mutex_unlock(&lock);
}
