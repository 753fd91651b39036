/* What a kernel library exports: plain C, included by its C++ units and parsed by cffi. */

/* The sizes a kernel runs on. A library built for fixed sizes refuses any others. */
typedef struct {
  int batch, in_channels, height, width;
  int out_channels, out_height, out_width;
  int groups, pad_top, pad_left;
} dscore_shape;

typedef struct {
  const void *x;
  const void *w;
  const void *bias; /* null for a layer without one */
  void *out;
  void *stream; /* hipStream_t or cudaStream_t; unused on the host */
  dscore_shape shape;
} dscore_args;

typedef struct {
  const char *name;
  int threads;   /* of a block */
  int lds_bytes; /* static, of a block */
  int wavefront;
  int (*launch)(const dscore_args *args); /* 0, or a code for dscore_error */
} dscore_kernel;

/* The kernels of the library; *count is how many. */
const dscore_kernel *dscore_kernels(int *count);

/* What a launch's code means; valid until the thread's next launch. */
const char *dscore_error(int code);

/* Changes when any of the above does. */
int dscore_abi(void);
