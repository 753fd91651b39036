/* What a kernel library exports: plain C, included by its C++ units and parsed by cffi. */

/* The sizes a kernel runs on. A library built for fixed sizes refuses any others. */
typedef struct {
  int batch, in_channels, height, width;
  int out_channels, out_height, out_width;
  int groups, pad_top, pad_left;
} dscore_shape;

/* An address as a number, which callers have at hand; 0 stands for none. */
typedef unsigned long long dscore_address;

typedef struct {
  const char *name;
  int threads;   /* of a block */
  int lds_bytes; /* of a block */
  int wavefront;
  int alignment; /* bytes that every array's address must be a multiple of */
  /* Starts the kernel on a device's stream (0: the default one); the caller's current device
   * stays current. Returns 0, or a code for dscore_error. */
  int (*launch)(const dscore_shape *shape, dscore_address x, dscore_address w,
                dscore_address bias, dscore_address out, dscore_address stream, int device);
} dscore_kernel;

/* The kernels of the library; *count is how many. */
const dscore_kernel *dscore_kernels(int *count);

/* What a launch's code means; valid until the thread's next launch. */
const char *dscore_error(int code);

/* Changes when any of the above does. */
int dscore_abi(void);
