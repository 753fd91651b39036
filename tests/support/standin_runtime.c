/* A stand-in for AMD's libamdhip64, made by the tests: one Z100SM whose memory is the host's, and
 * whose launches standin_launches.py hands to the interpreter of gfx906 machine code.
 *
 * Work is done when it is asked for, on any stream, unless the stream is being captured. Compiled
 * with ROCM at 5 or 6, which differ in the properties of a device; with DTK its attributes have the
 * numbers of Hygon's headers. Times are those of the host's clock, and say nothing of a device. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))
enum { success = 0, invalid_value = 1, out_of_memory = 2, invalid_device_pointer = 17,
       no_device = 100, invalid_device = 101, invalid_handle = 400, launch_failure = 719,
       not_captured = 901 };

static __thread int last_error;
static int sticky_error; /* what went wrong on the device: every later call reports it */

static int told(int code) {
  if (code == success) code = sticky_error;
  if (code != success) last_error = code;
  return code;
}

API int hipGetLastError(void) {
  const int code = last_error;
  last_error = success;
  return code;
}
API int hipPeekAtLastError(void) { return last_error; }
API const char *hipGetErrorString(int code) {
  switch (code) {
    case success: return "no error";
    case invalid_value: return "invalid argument";
    case out_of_memory: return "out of memory";
    case invalid_device_pointer: return "invalid device pointer";
    case no_device: return "no ROCm-capable device is detected";
    case invalid_device: return "invalid device ordinal";
    case invalid_handle: return "invalid resource handle";
    case launch_failure: return "unspecified launch failure";
    default: return "unknown error";
  }
}

/* Devices: STANDIN_DEVICES says how many. */
static __thread int current;
static const int64_t memory_bytes = 17163091968; /* what a driver leaves of 16 GiB */
static const char title[] = "Z100SM", architecture[] = "gfx906:sramecc+:xnack-";
static const int units = 64, lanes = 64, threads = 1024, lds_bytes = 65536, l2_bytes = 4194304,
                 clock_khz = 1725000, memory_khz = 1000000, bus_bits = 4096, pci_bus = 7;

static int devices(void) {
  const char *count = getenv("STANDIN_DEVICES");
  return count ? atoi(count) : 1;
}
static int known(int device) { return device >= 0 && device < devices(); }

API int hipGetDeviceCount(int *count) {
  *count = devices();
  return told(*count ? success : no_device);
}
API int hipGetDevice(int *device) {
  *device = current;
  return told(devices() ? success : no_device);
}
API int hipSetDevice(int device) {
  if (!known(device)) return told(invalid_device);
  current = device;
  return told(success);
}
API int hipDeviceGetName(char *name, int length, int device) {
  if (!known(device)) return told(invalid_device);
  snprintf(name, length, "%s", title);
  return told(success);
}
API int hipDeviceTotalMem(size_t *bytes, int device) {
  *bytes = memory_bytes;
  return told(known(device) ? success : invalid_device);
}
API int hipDeviceGetPCIBusId(char *id, int length, int device) {
  if (!known(device)) return told(invalid_device);
  snprintf(id, length, "0000:%02x:00.0", pci_bus + device);
  return told(success);
}
API int hipDriverGetVersion(int *version) {
  *version = ROCM * 10000000 + 221153;
  return told(success);
}
API int hipRuntimeGetVersion(int *version) { return hipDriverGetVersion(version); }

/* Attribute numbers: hip_runtime_api.h of ROCm 5.2, the same to this day; Hygon's headers go on
 * with those that HIP had before (hipDeviceAttribute_t). */
API int hipDeviceGetAttribute(int *value, int attribute, int device) {
#ifdef DTK
  enum { thread_block = 18, lds = 25, wavefront = 27, clock = 29, memory_clock = 30, bus = 31,
         compute_units = 32, l2 = 34 };
#else
  enum { thread_block = 56, lds = 74, wavefront = 87, clock = 5, memory_clock = 60, bus = 59,
         compute_units = 63, l2 = 19 };
#endif
  if (!known(device)) return told(invalid_device);
  switch (attribute) {
    case thread_block: *value = threads; break;
    case lds: *value = lds_bytes; break;
    case wavefront: *value = lanes; break;
    case clock: *value = clock_khz; break;
    case memory_clock: *value = memory_khz; break;
    case bus: *value = bus_bits; break;
    case compute_units: *value = units; break;
    case l2: *value = l2_bytes; break;
    default: return told(invalid_value);
  }
  return told(success);
}

static void put(void *properties, size_t offset, const void *value, size_t bytes) {
  memcpy((char *)properties + offset, value, bytes);
}
static void put_int(void *properties, size_t offset, int value) {
  put(properties, offset, &value, sizeof value);
}

/* hipDeviceProp_t of ROCm 5: 792 bytes (offsets: hip_runtime_api.h of ROCm 5.2). */
API int hipGetDeviceProperties(void *properties, int device) {
  if (!known(device)) return told(invalid_device);
  memset(properties, 0, 792);
  put(properties, 0, title, sizeof title);
  put(properties, 256, &memory_bytes, 8);
  put_int(properties, 264, lds_bytes);
  put_int(properties, 276, lanes);
  put_int(properties, 280, threads);
  put_int(properties, 308, clock_khz);
  put_int(properties, 312, memory_khz);
  put_int(properties, 316, bus_bits);
  put_int(properties, 336, units);
  put_int(properties, 340, l2_bytes);
  put_int(properties, 368, pci_bus + device);
  put(properties, 396, architecture, sizeof architecture);
  return told(success);
}

#if ROCM >= 6
/* hipDeviceProp_tR0600: 1,472 bytes (offsets: hip_runtime_api.h of ROCm 6.2). */
API int hipGetDevicePropertiesR0600(void *properties, int device) {
  if (!known(device)) return told(invalid_device);
  memset(properties, 0, 1472);
  put(properties, 0, title, sizeof title);
  put(properties, 288, &memory_bytes, 8);
  put_int(properties, 296, lds_bytes);
  put_int(properties, 308, lanes);
  put_int(properties, 320, threads);
  put_int(properties, 348, clock_khz);
  put_int(properties, 388, units);
  put_int(properties, 584, pci_bus + device);
  put_int(properties, 608, memory_khz);
  put_int(properties, 612, bus_bits);
  put_int(properties, 616, l2_bytes);
  put(properties, 1160, architecture, sizeof architecture);
  return told(success);
}
#endif

/* Memory, full of NaN at first. Every access of the runtime's is held to one allocation. */
typedef struct Allocation {
  char *start;
  size_t bytes;
  struct Allocation *next;
} Allocation;
static Allocation *allocations;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The allocation that *bytes* from *address* on lie in, or none. */
static Allocation *allocation_of(const void *address, size_t bytes) {
  const char *first = address;
  pthread_mutex_lock(&lock);
  Allocation *one = allocations;
  while (one && !(first >= one->start && first + bytes <= one->start + one->bytes)) one = one->next;
  pthread_mutex_unlock(&lock);
  return one;
}
/* Bytes from *address* to the end of its allocation; 0 where it lies in none. */
API size_t standin_bytes_from(const void *address) {
  const Allocation *one = allocation_of(address, 1);
  return one ? one->start + one->bytes - (const char *)address : 0;
}
API size_t standin_allocated_bytes(void) {
  size_t sum = 0;
  for (Allocation *one = allocations; one; one = one->next) sum += one->bytes;
  return sum;
}

API int hipMalloc(void **address, size_t bytes) {
  if (!devices()) return told(no_device);
  if (bytes > (size_t)memory_bytes) return told(out_of_memory);
  Allocation *one = malloc(sizeof *one);
  one->bytes = (bytes + 3) / 4 * 4; /* devices give more than is asked for, too */
  one->start = aligned_alloc(256, (one->bytes + 255) / 256 * 256);
  memset(one->start, 0xff, one->bytes);
  pthread_mutex_lock(&lock);
  one->next = allocations;
  allocations = one;
  pthread_mutex_unlock(&lock);
  *address = one->start;
  return told(success);
}
API int hipFree(void *address) {
  if (!address) return told(success);
  pthread_mutex_lock(&lock);
  Allocation **at = &allocations;
  while (*at && (*at)->start != address) at = &(*at)->next;
  Allocation *one = *at;
  if (one) *at = one->next;
  pthread_mutex_unlock(&lock);
  if (!one) return told(invalid_device_pointer);
  free(one->start);
  free(one);
  return told(success);
}

/* Work: a copy, a fill (source is null) or a launch, done now or kept in a graph. */
typedef struct Work {
  void *target;
  const void *source;
  size_t bytes;
  int value;
  long launch; /* number of a launch; 0: a copy or a fill */
  struct Work *next;
} Work;
typedef struct {
  Work *first, *last;
} Graph;
typedef struct {
  Graph *captured; /* null while it is not captured */
} Stream;

/* What standin_launches.py registers: of a launch, its number (below 0 where it cannot be made), and
 * the run of one. */
static long (*prepare)(const void *binary, const char *name, const unsigned *grid,
                       const unsigned *block, unsigned lds, void **arguments);
static int (*run)(long launch);
API void standin_register(void *prepares, void *runs) {
  *(void **)&prepare = prepares;
  *(void **)&run = runs;
}

/* Not in the caller's thread: Python would answer a signal there, within the callback. */
static void *run_launch(void *launch) { return (void *)(intptr_t)run(*(long *)launch); }

static int done(const Work *work) {
  if (!work->launch && !work->source) memset(work->target, work->value, work->bytes);
  if (!work->launch && work->source) memmove(work->target, work->source, work->bytes);
  if (work->launch) {
    pthread_t thread;
    void *failed = NULL;
    long launch = work->launch;
    if (pthread_create(&thread, NULL, run_launch, &launch)) abort();
    pthread_join(thread, &failed);
    if (failed) return sticky_error = launch_failure;
  }
  return success;
}
static int started(Work work, Stream *stream) {
  if (!stream || !stream->captured) return told(done(&work));
  Work *kept = malloc(sizeof work);
  *kept = work;
  kept->next = NULL;
  Graph *graph = stream->captured;
  if (graph->last) graph->last->next = kept;
  else graph->first = kept;
  graph->last = kept;
  return told(success);
}

static int on_device(const void *address, size_t bytes) { return allocation_of(address, bytes) != NULL; }

API int hipMemcpyAsync(void *target, const void *source, size_t bytes, int kind, void *stream) {
  const int to_device = kind == 1 || kind == 3, from_device = kind == 2 || kind == 3;
  if (kind < 1 || kind > 3 || on_device(target, bytes) != to_device ||
      on_device(source, bytes) != from_device)
    return told(invalid_value);
  return started((Work){.target = target, .source = source, .bytes = bytes}, stream);
}
API int hipMemcpy(void *target, const void *source, size_t bytes, int kind) {
  return hipMemcpyAsync(target, source, bytes, kind, NULL);
}
API int hipMemsetAsync(void *target, int value, size_t bytes, void *stream) {
  if (!on_device(target, bytes)) return told(invalid_value);
  return started((Work){.target = target, .value = value, .bytes = bytes}, stream);
}
API int hipDeviceSynchronize(void) { return told(success); }

API int hipStreamCreate(void **stream) {
  *stream = calloc(1, sizeof(Stream));
  return told(success);
}
API int hipStreamDestroy(void *stream) {
  free(stream);
  return told(success);
}
API int hipStreamSynchronize(void *stream) { return told(((void)stream, success)); }
API int hipStreamBeginCapture(Stream *stream, int mode) {
  if (!stream || stream->captured || mode < 0 || mode > 2) return told(invalid_value);
  stream->captured = calloc(1, sizeof(Graph));
  return told(success);
}
API int hipStreamEndCapture(Stream *stream, void **graph) {
  if (!stream || !stream->captured) return told(not_captured);
  *graph = stream->captured;
  stream->captured = NULL;
  return told(success);
}
/* An executable graph is the graph itself, which outlives it: nothing of either is freed. */
API int hipGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
  *executable = graph;
  return told(flags ? invalid_value : success);
}
API int hipGraphLaunch(Graph *graph, void *stream) {
  (void)stream;
  for (Work *work = graph->first; work; work = work->next)
    if (done(work)) break;
  return told(success);
}
API int hipGraphExecDestroy(void *graph) { return told(graph ? success : invalid_value); }
API int hipGraphDestroy(void *graph) { return told(graph ? success : invalid_value); }

API int hipEventCreate(void **event) {
  *event = calloc(1, sizeof(struct timespec));
  return told(success);
}
API int hipEventDestroy(void *event) {
  free(event);
  return told(success);
}
API int hipEventRecord(void *event, void *stream) {
  (void)stream;
  clock_gettime(CLOCK_MONOTONIC, event);
  return told(success);
}
API int hipEventSynchronize(void *event) { return told(event ? success : invalid_handle); }
API int hipEventElapsedTime(float *milliseconds, const struct timespec *start,
                            const struct timespec *end) {
  if (!start->tv_sec || !end->tv_sec) return told(invalid_handle);
  *milliseconds = (end->tv_sec - start->tv_sec) * 1e3f + (end->tv_nsec - start->tv_nsec) * 1e-6f;
  return told(success);
}

/* Registration of a library's kernels, and their launches, as clang writes both into host code. */
typedef struct Kernel {
  const void *handle; /* the host's function */
  const void *binary; /* the offload bundle that it is in */
  const char *name;
  struct Kernel *next;
} Kernel;
static Kernel *kernels;

API void **__hipRegisterFatBinary(const void *wrapper) {
  struct { uint32_t magic, version; const void *binary, *unused; } fat;
  memcpy(&fat, wrapper, sizeof fat);
  if (fat.magic != 0x48495046) abort();
  const void **module = malloc(sizeof *module);
  *module = fat.binary;
  return (void **)module;
}
API void __hipUnregisterFatBinary(void **module) {
  for (Kernel **at = &kernels; *at;) {
    Kernel *one = *at;
    if (one->binary == *module) *at = one->next, free(one);
    else at = &one->next;
  }
  free(module);
}
API void __hipRegisterFunction(void **module, const void *handle, char *device_function,
                               const char *name, unsigned limit, void *thread, void *block,
                               void *block_size, void *grid, int *wavefront) {
  (void)device_function, (void)limit, (void)thread, (void)block, (void)block_size, (void)grid,
      (void)wavefront;
  Kernel *one = malloc(sizeof *one);
  *one = (Kernel){handle, *module, name, kernels};
  kernels = one;
}

typedef struct { unsigned x, y, z; } Size;
static __thread struct { Size grid, block; size_t lds; void *stream; } configuration;
API int __hipPushCallConfiguration(Size grid, Size block, size_t lds, void *stream) {
  configuration.grid = grid, configuration.block = block;
  configuration.lds = lds, configuration.stream = stream;
  return success;
}
API int __hipPopCallConfiguration(Size *grid, Size *block, size_t *lds, void **stream) {
  *grid = configuration.grid, *block = configuration.block;
  *lds = configuration.lds, *stream = configuration.stream;
  return success;
}

/* Of CPython's API: this process is one of Python's. */
__attribute__((weak)) int PyGILState_Ensure(void);
__attribute__((weak)) void PyGILState_Release(int);
__attribute__((weak)) int PyRun_SimpleStringFlags(const char *, void *);
static void register_interpreter(void) {
  const int state = PyGILState_Ensure();
  if (PyRun_SimpleStringFlags("import standin_launches", NULL)) abort();
  PyGILState_Release(state);
}

API int hipLaunchKernel(const void *handle, Size grid, Size block, void **arguments, size_t lds,
                        void *stream) {
  if (sticky_error) return told(sticky_error);
  Kernel *one = kernels;
  while (one && one->handle != handle) one = one->next;
  if (!one || !known(current)) return told(invalid_handle);
  if (!prepare) register_interpreter();
  const long launch = prepare(one->binary, one->name, &grid.x, &block.x, lds, arguments);
  if (launch <= 0) return told(sticky_error = launch_failure);
  return started((Work){.launch = launch}, stream);
}
