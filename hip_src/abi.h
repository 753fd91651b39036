/* What a kernel library exports: plain C, included by its C++ units and parsed by cffi. */

/* Changes when anything below does. */
#define DSCORE_ABI 11

/* The layouts of images: batch, channels, height, width; or the channels last. */
#define DSCORE_NCHW 0
#define DSCORE_NHWC 1

/* The sizes a kernel runs on. A library built for fixed sizes refuses any others, and a kernel any
 * layout but its own. */
typedef struct {
  int batch, in_channels, height, width;
  int out_channels, out_height, out_width;
  int groups, pad_top, pad_left;
  int layout;
} dscore_shape;

/* An address as a number, which callers have at hand; 0 stands for none. */
typedef unsigned long long dscore_address;

#define DSCORE_MOST_OPERANDS 10

/* Where a kernel's operands lie, in the order of the operation's (as x, w, bias, out), its
 * workspace behind them if it needs one; and the device's stream that it runs on (0: the default
 * one). */
typedef struct {
  dscore_address at[DSCORE_MOST_OPERANDS];
  dscore_address stream;
} dscore_operands;

#define DSCORE_MISPLACED -2

/* Starts a kernel on a device; the caller's current device stays current. Returns 0,
 * DSCORE_MISPLACED for an operand at 0 that must not be missing or at no multiple of the alignment,
 * or another code for dscore_error. */
typedef int (*dscore_launch)(const dscore_shape *shape, const dscore_operands *operands,
                             int device);

typedef struct {
  const char *name;
  int threads;   /* of a block */
  int lds_bytes; /* of a block */
  int wavefront;
  int alignment;     /* bytes that every operand's address must be a multiple of */
  int operands;      /* addresses that a launch reads */
  int element_bytes; /* of an image's element */
  long long (*workspace_bytes)(const dscore_shape *shape);
  dscore_launch launch;
  /* The same behind the launch of another of these kernels, which writes none of its operands but
   * images, residuals and scales: the others are read before that kernel has ended. */
  dscore_launch launch_behind;
} dscore_kernel;

/* A launch but for its operands. */
typedef struct {
  dscore_launch launch;
  dscore_shape shape;
  int device;
  int operands;
} dscore_call;

/* The kernels of the library; *count is how many. */
const dscore_kernel *dscore_kernels(int *count);

/* What a launch's code means; valid until the thread's next launch. */
const char *dscore_error(int code);

/* The PyMethodDef of a function of Python: with the bytes of one dscore_call or more as its self it
 * takes the addresses of their operands and a stream, makes the launches in order, all with these
 * operands, and returns the first code that is not 0. */
const void *dscore_python_start(void);

/* DSCORE_ABI, as the library was built for it. */
int dscore_abi(void);
