/* What a kernel library exports: plain C, included by its C++ units and parsed by cffi. */

/* The sizes a kernel runs on. A library built for fixed sizes refuses any others. */
typedef struct {
  int batch, in_channels, height, width;
  int out_channels, out_height, out_width;
  int groups, pad_top, pad_left;
} dscore_shape;

/* An address as a number, which callers have at hand; 0 stands for none. */
typedef unsigned long long dscore_address;

/* Where a kernel reads and writes, and the device's stream that it runs on (0: the default one). */
typedef struct {
  dscore_address x, w, bias, out, stream;
} dscore_places;

#define DSCORE_MISPLACED -2

typedef struct {
  const char *name;
  int threads;   /* of a block */
  int lds_bytes; /* of a block */
  int wavefront;
  int alignment; /* bytes that every array's address must be a multiple of */
  /* Starts the kernel on a device; the caller's current device stays current. Returns 0,
   * DSCORE_MISPLACED for an array at 0 or at no multiple of the alignment, or another code for
   * dscore_error. */
  int (*launch)(const dscore_shape *shape, const dscore_places *places, int device);
} dscore_kernel;

/* A launch but for its places. */
typedef struct {
  int (*launch)(const dscore_shape *shape, const dscore_places *places, int device);
  dscore_shape shape;
  int device;
} dscore_call;

/* The kernels of the library; *count is how many. */
const dscore_kernel *dscore_kernels(int *count);

/* What a launch's code means; valid until the thread's next launch. */
const char *dscore_error(int code);

/* The PyMethodDef of a function of Python: with the bytes of a dscore_call as its self it takes the
 * five numbers of a dscore_places, and returns what the launch does. */
const void *dscore_python_start(void);

/* Changes when any of the above does. */
int dscore_abi(void);
