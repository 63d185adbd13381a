/* Runs bundles that adrenoc compiled: the C API of libadrenoc_runtime.so.
 *
 *   adrenoc_model* model = NULL;
 *   if (adrenoc_load("mobilenet_v2.adrenoc", NULL, &model) != ADRENOC_OK) fail(adrenoc_last_error());
 *   adrenoc_bind_input(model, 0, pixels, sizeof(pixels));
 *   adrenoc_bind_output(model, 0, scores, sizeof(scores));
 *   adrenoc_run(model);
 *   adrenoc_free(model);
 *
 * Tensors of the host are dense and row-major, in the byte order of the machine, with the shapes
 * and dtypes that the model file has.
 *
 * Errors: a function that can fail returns a status; adrenoc_last_error() says more, for the
 * calling thread.  No C++ exception leaves the library, and it never ends the process.
 *
 * Threads: any thread may call any function.  Calls for one model wait for each other; calls for
 * different models run at the same time, as far as the device lets them.  adrenoc_free must be the
 * last call for its model.  What a function returns by pointer lives as long as the model, except
 * for adrenoc_last_error (until the thread's next call) and for names and shapes of inputs and
 * outputs (until adrenoc_set_input_shapes or adrenoc_set_signature).
 */
#ifndef ADRENOC_H_
#define ADRENOC_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(ADRENOC_BUILDS_RUNTIME)
#define ADRENOC_API __attribute__((visibility("default")))
#else
#define ADRENOC_API
#endif

typedef enum adrenoc_status {
  ADRENOC_OK = 0,
  ADRENOC_BAD_ARGUMENT = 1,  /* a null pointer, an index or a size that does not fit */
  ADRENOC_NOT_FOUND = 2,     /* no such file, or it cannot be read */
  ADRENOC_BAD_BUNDLE = 3,    /* damaged, of another version, or not for this machine */
  ADRENOC_NO_DEVICE = 4,     /* no OpenCL, or no device of the name that was asked for */
  ADRENOC_DEVICE_FAILED = 5, /* the device refused a kernel or a call */
  ADRENOC_OUT_OF_MEMORY = 6, /* of the host or of the device */
  ADRENOC_INTERNAL = 7,      /* a defect of the runtime */
  ADRENOC_NOT_READY = 8,     /* a run that was started goes on */
  ADRENOC_UNSUPPORTED = 9,   /* the device or the system lacks what this call needs */
  ADRENOC_WRONG_RESULTS = 10, /* adrenoc_verify: the device computes other numbers;
                                 adrenoc_generate: no logit is a number */
  ADRENOC_CONTEXT_FULL = 11, /* a decoder has no room for more tokens */
  ADRENOC_CANCELLED = 12     /* by adrenoc_cancel, by adrenoc_cancellation_cancel, or by the deadline
                                of a run */
} adrenoc_status;

typedef struct adrenoc_model adrenoc_model;
typedef struct adrenoc_cancellation adrenoc_cancellation;

/* How to load.  Set everything to 0 and `struct_bytes` to sizeof(adrenoc_options) first. */
typedef struct adrenoc_options {
  uint32_t struct_bytes;
  /* 1: do not compare the files with the digests of the manifest.  Faster, and only for bundles
   * that nobody else can write: a damaged model.so can do anything. */
  uint32_t trust_files;
  /* The OpenCL device: a number, a part of its name, NULL for the first with images, or "cpu" for a
   * bundle that holds no OpenCL kernels, or carries code for the CPU (`compile --fallback cpu`).
   * That code also computes where NULL finds no device, or one that refuses the kernels as the
   * model is loaded: adrenoc_device_name is "CPU" then, and adrenoc_notes says why.  A device that
   * is named is never replaced. */
  const char* device;
  /* The OpenCL library to open; NULL for the system's.  The first load of the process that needs one
   * decides, and adrenoc_notes of later ones say so where they name another. */
  const char* opencl_library;
  /* A folder for built kernels, so that the next load needs no compiler; NULL for none.  It is
   * made if its parent is there.  Damaged or foreign files in it are replaced. */
  const char* cache_folder;
  /* 1: on Qualcomm's drivers, kernels that another driver built are used if that driver is of the
   * same branch or older.  0: only if it is the very same. */
  uint32_t qualcomm_programs;
  /* 1: every run goes through the virtual machine.  0: runs after the first repeat its launches,
   * on the same memory, which the model then keeps: as one command where the driver can record and
   * a trial does not show that to be slower, else one by one with arguments that were set once. */
  uint32_t no_record;
  /* Wishes to the driver, each an adrenoc_level: how fast the GPU shall run, and whether its commands
   * go before those of others, such as what draws the screen.  They hold for the device and the
   * process: the first load on a device decides.  adrenoc_notes tells what became of them. */
  uint32_t performance; /* by cl_qcom_perf_hint */
  uint32_t priority;    /* by cl_qcom_priority_hint or cl_khr_priority_hints */
  /* Runs that take longer than so many milliseconds are given to the device in pieces of at most that,
   * so that adrenoc_cancel ends them within one; 0: they are not cut, and end as a whole. */
  double cancel_within_ms;
  /* Who may cancel this load; NULL for nobody.  It has to be there until the load ends. */
  adrenoc_cancellation* cancellation;
} adrenoc_options;

typedef enum adrenoc_level {
  ADRENOC_LEVEL_UNSET = 0, /* the driver decides */
  ADRENOC_LEVEL_LOW = 1,
  ADRENOC_LEVEL_NORMAL = 2,
  ADRENOC_LEVEL_HIGH = 3
} adrenoc_level;

typedef struct adrenoc_tensor_info {
  const char* name;
  const char* dtype; /* "float32", "float16", "int64", ...; adrenoc_dtype_of has numbers for them */
  const int64_t* shape;
  uint32_t rank;
  uint64_t bytes;
} adrenoc_tensor_info;

/* Dtypes of tensors as numbers, which are those of ONNX (TensorProto.DataType). */
typedef enum adrenoc_dtype {
  ADRENOC_DTYPE_UNKNOWN = 0,
  ADRENOC_FLOAT32 = 1,
  ADRENOC_UINT8 = 2,
  ADRENOC_INT8 = 3,
  ADRENOC_UINT16 = 4,
  ADRENOC_INT16 = 5,
  ADRENOC_INT32 = 6,
  ADRENOC_INT64 = 7,
  ADRENOC_BOOL = 9,
  ADRENOC_FLOAT16 = 10,
  ADRENOC_FLOAT64 = 11,
  ADRENOC_UINT32 = 12,
  ADRENOC_UINT64 = 13
} adrenoc_dtype;

/* Milliseconds of wall clock.  Of the load: opening and checking files, moving the constants to the
 * device, building kernels (which goes on while constants move: build_ms holds both).  Of the last
 * run: moving inputs, computing, moving outputs. */
typedef struct adrenoc_times {
  double open_ms;
  double constants_ms;
  double build_ms;
  double first_compute_ms;
  double upload_ms;
  double compute_ms;
  double download_ms;
  uint64_t runs;
  uint32_t cache_hits;    /* kernels that came built from the cache folder or the bundle */
  uint32_t cache_misses;  /* kernels that had to be built */
  uint32_t cache_damaged; /* of these: what the cache had for them could not be used */
} adrenoc_times;

/* How the last run reached the device.  Set `struct_bytes` to sizeof(adrenoc_launching) first. */
typedef struct adrenoc_launching {
  uint32_t struct_bytes;
  uint32_t launches;  /* of kernels */
  uint32_t api_calls; /* to OpenCL, without those that move inputs and outputs */
  double host_ms;     /* until the device had all of it: the median of the runs in that mode */
  const char* mode;   /* "the virtual machine", "kept arguments", "a command buffer" or
                       * "a recordable queue"; "none" before the first run and on the CPU */
  const char* reason; /* why it is no better one; "" where it is the best */
  /* With a ceiling on submissions: how many there were (0: it was not cut), how long the longest took
   * from its first launch until the host saw its end, and the mean time from such an end to the next
   * one's first launch. */
  uint32_t submissions;
  double longest_submission_ms;
  double gap_ms;
} adrenoc_launching;

/* "0.1.0 tvm-0.27.0.post1 tvm-ffi-0.1.14.post1 <digest of the sources>". */
ADRENOC_API const char* adrenoc_runtime_version(void);

/* What went wrong in this thread's last call that failed; "" before the first. */
ADRENOC_API const char* adrenoc_last_error(void);

/* "no device", for messages. */
ADRENOC_API const char* adrenoc_status_text(adrenoc_status status);

/* 1 for a status that the same call would have again, however often it is tried: a bundle that is no
 * good here, no device, numbers that are wrong.  Compute elsewhere then.  0 for what may pass, as
 * ADRENOC_NOT_READY and ADRENOC_OUT_OF_MEMORY do, and for wrong calls. */
ADRENOC_API int adrenoc_status_is_permanent(adrenoc_status status);

/* Set one of the options by text, "key=value": a field of adrenoc_options, numbers as digits, of
 * `performance` and `priority` low, normal or high.  The text has to be there until the load ends.
 * ADRENOC_BAD_ARGUMENT, with the keys that there are, for another one or a wrong value. */
ADRENOC_API adrenoc_status adrenoc_set_option(adrenoc_options* options, const char* text);

/* What a bundle holds, of a folder or a tar file, without a device and for whatever machine it is: a
 * JSON object of its manifest.json, as "manifest", and of its buckets.json and devices.json, as
 * "buckets" and "devices", null where it has none.  NULL: it cannot be read, and adrenoc_last_error says
 * why.  Good until the thread's next call of this. */
ADRENOC_API const char* adrenoc_describe(const char* path);

/* SHA-256 of a file, in 64 letters and a 0: of a model it is what the manifest of its bundle has as
 * "file_sha256". */
ADRENOC_API adrenoc_status adrenoc_file_sha256(const char* path, char sha256[65]);

/* Load a bundle from a folder or a tar file of one.  `options` may be NULL. */
ADRENOC_API adrenoc_status adrenoc_load(const char* path, const adrenoc_options* options,
                                        adrenoc_model** model);

/* Load the tar form from `bytes` bytes at `offset` of an open file, such as an asset that lies
 * uncompressed in an APK.  The descriptor stays the caller's and may be closed afterwards. */
ADRENOC_API adrenoc_status adrenoc_load_fd(int descriptor, int64_t offset, int64_t bytes,
                                           const adrenoc_options* options, adrenoc_model** model);

/* Load the tar form from memory, which may be released afterwards. */
ADRENOC_API adrenoc_status adrenoc_load_memory(const void* data, size_t bytes,
                                               const adrenoc_options* options,
                                               adrenoc_model** model);

/* Gives the device all memory back that no other model holds.  NULL is allowed. */
ADRENOC_API void adrenoc_free(adrenoc_model* model);

/* Give the device back what is kept to be used again, as when Android asks apps to trim their memory:
 * what lies between the launches of `model`, whose next run takes longer, and what is in nobody's
 * use.  NULL: the latter alone. */
ADRENOC_API adrenoc_status adrenoc_trim(adrenoc_model* model);

/* What a developer should know of how the model runs here, a line each; "" where there is nothing:
 * that it was compiled for another GPU, that its built kernels cannot be kept, what became of
 * `performance` and `priority`.  Good until the next call of this for the model. */
ADRENOC_API const char* adrenoc_notes(adrenoc_model* model);

/* The model's name, and the device that it runs on. */
ADRENOC_API const char* adrenoc_model_name(const adrenoc_model* model);
ADRENOC_API const char* adrenoc_device_name(const adrenoc_model* model);

/* What the OpenCL device says of itself that a model would run on that was loaded with these options,
 * as JSON: "name", "driver", "version", "gpu" (the number of an Adreno, "" of another device),
 * "limits", "images", "extensions".  Needs no bundle; `options` may be NULL.  The text is good until
 * the thread's next call of this. */
ADRENOC_API adrenoc_status adrenoc_describe_device(const adrenoc_options* options,
                                                   const char** facts);

ADRENOC_API size_t adrenoc_input_count(const adrenoc_model* model);
ADRENOC_API size_t adrenoc_output_count(const adrenoc_model* model);
ADRENOC_API adrenoc_status adrenoc_input_info(const adrenoc_model* model, size_t index,
                                              adrenoc_tensor_info* info);
ADRENOC_API adrenoc_status adrenoc_output_info(const adrenoc_model* model, size_t index,
                                               adrenoc_tensor_info* info);

/* The number of a dtype's name; ADRENOC_DTYPE_UNKNOWN for another name, and NULL. */
ADRENOC_API adrenoc_dtype adrenoc_dtype_of(const char* name);

/* A bundle of several signatures of a TFLite file (`compile --signature`) holds several calls, with
 * inputs and outputs of their own and the constants that they share once; all of them are loaded.
 * A state of several of them is one memory, whichever runs.  Their names, the one that is chosen at
 * first before the others; NULL for an index beyond them.  A bundle of one call has none. */
ADRENOC_API size_t adrenoc_signature_count(const adrenoc_model* model);
ADRENOC_API const char* adrenoc_signature_name(const adrenoc_model* model, size_t index);

/* Choose the call: from now on inputs, outputs and buckets are those of that signature, and nothing is
 * bound.  ADRENOC_BAD_ARGUMENT, with all names in adrenoc_last_error, where there is none of that
 * name. */
ADRENOC_API adrenoc_status adrenoc_set_signature(adrenoc_model* model, const char* name);

/* A bundle that was compiled with ranges of shapes holds a bucket for each choice of extents.  All
 * of them are loaded, with the constants that they share once; the smallest comes first, and the
 * largest is chosen.  A bundle for one shape has one bucket. */
ADRENOC_API size_t adrenoc_bucket_count(const adrenoc_model* model);
ADRENOC_API adrenoc_status adrenoc_bucket_input_info(const adrenoc_model* model, size_t bucket,
                                                     size_t index, adrenoc_tensor_info* info);
ADRENOC_API adrenoc_status adrenoc_bucket_output_info(const adrenoc_model* model, size_t bucket,
                                                      size_t index, adrenoc_tensor_info* info);

/* Extents of an input, the slowest first; NULL for whatever the bucket has. */
typedef struct adrenoc_shape {
  const int64_t* extents;
  uint32_t rank;
} adrenoc_shape;

/* Choose the smallest bucket that takes inputs of these shapes, one of `count` for each input of
 * the model.  A batch may be smaller than the bucket's where the compiler has shown that it does
 * not matter: the rest is filled up with zeros, and what comes of it is cut off.  Other shapes have
 * to be those of a bucket, else ADRENOC_BAD_ARGUMENT, with all buckets in adrenoc_last_error, and
 * what was chosen stays.  Afterwards adrenoc_input_info and adrenoc_output_info tell the new
 * shapes, and nothing is bound. */
ADRENOC_API adrenoc_status adrenoc_set_input_shapes(adrenoc_model* model,
                                                    const adrenoc_shape* shapes, size_t count);

/* Name the host memory that each run reads an input from or writes an output to.  It must stay
 * there until another is bound or the model is freed.  `bytes` must be the tensor's.  An output
 * that is not bound, or bound to NULL, is not moved to the host.  A state that is not bound, or
 * bound to NULL, stays on the device: zeros at first, then what the run before left. */
ADRENOC_API adrenoc_status adrenoc_bind_input(adrenoc_model* model, size_t index, const void* data,
                                              size_t bytes);
ADRENOC_API adrenoc_status adrenoc_bind_output(adrenoc_model* model, size_t index, void* data,
                                               size_t bytes);

/* Name memory of the device instead: a cl_mem, as void* here, that is a buffer of at least the
 * tensor's bytes in the context of adrenoc_opencl_context.  An input is read in place; an output is
 * copied there by the device.  The runtime retains the buffer until another memory is bound.  What
 * the app does to it must have ended when a run starts, and may go on when the run has ended.
 * ADRENOC_UNSUPPORTED on the CPU, and for a batch that is filled up. */
ADRENOC_API adrenoc_status adrenoc_bind_input_opencl(adrenoc_model* model, size_t index,
                                                     void* buffer);
ADRENOC_API adrenoc_status adrenoc_bind_output_opencl(adrenoc_model* model, size_t index,
                                                      void* buffer);

/* The same with an AHardwareBuffer of the format BLOB, where the device has
 * cl_qcom_android_ahardwarebuffer_host_ptr or cl_khr_external_memory_android_hardware_buffer, else
 * ADRENOC_UNSUPPORTED.  It must live until another memory is bound, and must not be locked for the
 * CPU while a run goes on. */
struct AHardwareBuffer;
ADRENOC_API adrenoc_status adrenoc_bind_input_hardware_buffer(adrenoc_model* model, size_t index,
                                                              struct AHardwareBuffer* buffer);
ADRENOC_API adrenoc_status adrenoc_bind_output_hardware_buffer(adrenoc_model* model, size_t index,
                                                               struct AHardwareBuffer* buffer);

/* The cl_context and the cl_device_id that a model would run on that was loaded with these options,
 * and without code for the CPU; buffers may be made there before any model is loaded.  `options` may
 * be NULL, as `context` and `device`. */
ADRENOC_API adrenoc_status adrenoc_open_device(const adrenoc_options* options, void** context,
                                               void** device);

/* The cl_context and the cl_device_id that the model runs on, which live as long as the process;
 * NULL on the CPU. */
ADRENOC_API void* adrenoc_opencl_context(const adrenoc_model* model);
ADRENOC_API void* adrenoc_opencl_device(const adrenoc_model* model);

/* Compute; returns when the outputs are there. */
ADRENOC_API adrenoc_status adrenoc_run(adrenoc_model* model);

typedef enum adrenoc_memory_kind {
  ADRENOC_HOST = 0,
  ADRENOC_OPENCL = 1,         /* a cl_mem, as adrenoc_bind_input_opencl takes it */
  ADRENOC_HARDWARE_BUFFER = 2 /* an AHardwareBuffer of the format BLOB */
} adrenoc_memory_kind;

/* Where one run reads an input from or writes an output to.  Set everything to 0 first. */
typedef struct adrenoc_tensor {
  void* memory;        /* of an input it is only read; NULL: as what is not bound */
  uint32_t kind;       /* an adrenoc_memory_kind */
  uint32_t reserved;
  uint64_t bytes;      /* of the host's memory: the tensor's; else it is not read */
  uint64_t offset;     /* where the tensor begins in a cl_mem: a multiple of the device's
                        * CL_DEVICE_MEM_BASE_ADDR_ALIGN; 0 for other kinds */
  adrenoc_shape shape; /* of an input: as for adrenoc_set_input_shapes; of an output it is not read */
} adrenoc_tensor;

/* How one run ends before its end, with ADRENOC_CANCELLED; how soon and what holds then is as
 * adrenoc_cancel says.  Set everything to 0 and `struct_bytes` to sizeof first. */
typedef struct adrenoc_run_options {
  uint32_t struct_bytes;
  uint32_t reserved;
  double deadline_ms; /* after the call; what waits for its turn then ends as that comes.  0 for none */
  adrenoc_cancellation* cancellation; /* has to be there until the run ends; NULL for nobody */
} adrenoc_run_options;

/* Compute once on memory of this run, one tensor for each input and output, in the bucket that takes
 * the inputs' shapes; the run and what it needs are one call, so that threads may share a model.
 * What was chosen and bound stays as it is, and is not used.  `options` may be NULL. */
ADRENOC_API adrenoc_status adrenoc_run_with(adrenoc_model* model, const adrenoc_tensor* inputs,
                                            size_t input_count, const adrenoc_tensor* outputs,
                                            size_t output_count,
                                            const adrenoc_run_options* options);

/* The shape that adrenoc_run_with gives output `index`, for inputs of these shapes; nothing of the
 * model changes, and a run that goes on is not waited for.  `rank` says how many `extents` there is
 * room for, and becomes how many there are; NULL for `extents` asks only for that. */
ADRENOC_API adrenoc_status adrenoc_output_shape_for(const adrenoc_model* model,
                                                    const adrenoc_shape* inputs,
                                                    size_t input_count, size_t index,
                                                    int64_t* extents, uint32_t* rank);

/* What adrenoc_verify did.  Set `struct_bytes` to sizeof(adrenoc_verdict) first. */
typedef struct adrenoc_verdict {
  uint32_t struct_bytes;
  uint32_t was_kept; /* 1: the verdict of an earlier start, from the cache folder; nothing ran */
  uint32_t runs;     /* of the model */
  double ms;
} adrenoc_verdict;

/* Does this driver compute what it should?  Runs the model some times, of each bucket, on the inputs
 * of the proof that `adrenoc prove` put into the bundle, and compares with the reference's numbers
 * there, and bits with bits.  Nothing of the app's is touched: what was chosen and bound stays.  The
 * verdict lies in the cache folder by device, driver, bundle and runtime: where these are the same,
 * the next call runs nothing.
 * ADRENOC_OK: it does.  ADRENOC_WRONG_RESULTS: it does not, and adrenoc_last_error says where in one
 * sentence: load the bundle with the device "cpu", or another one.  ADRENOC_DEVICE_FAILED: it refused
 * a call, or two earlier proofs never ended.  ADRENOC_UNSUPPORTED: the bundle carries no proof.
 * `verdict` may be NULL, and is filled in with the first two. */
ADRENOC_API adrenoc_status adrenoc_verify(adrenoc_model* model, adrenoc_verdict* verdict);

/* Compute `runs` times (at least once) and wait once, at the end: what a stream of inputs costs.
 * The bound inputs move once, before, and the outputs once, after.  `ms` becomes the time of one
 * run, `host_ms` the part of it that the host takes to launch; either may be NULL. */
ADRENOC_API adrenoc_status adrenoc_run_repeatedly(adrenoc_model* model, uint32_t runs, double* ms,
                                                  double* host_ms);

/* Compute once while the device notes when each kernel runs.  Returns a JSON array of
 * [kernel, start in ns, end in ns], in order of launch, good until the next call for this model, or
 * NULL (see adrenoc_last_error). */
ADRENOC_API const char* adrenoc_profile(adrenoc_model* model);

/* Compute on a thread of the model's own, and return at once.  The bound memory must be left alone
 * until adrenoc_wait has said that the run has ended.  ADRENOC_NOT_READY while another run goes on
 * that nobody has waited for. */
ADRENOC_API adrenoc_status adrenoc_run_async(adrenoc_model* model);

/* Wait for the run that adrenoc_run_async started, at most `timeout_ms` milliseconds, without limit
 * if that is negative; 0 asks and does not wait.  Returns how the run ended (adrenoc_last_error
 * then says more), or ADRENOC_NOT_READY.  Without such a run it returns ADRENOC_BAD_ARGUMENT.  One
 * thread at a time may wait for a model. */
ADRENOC_API adrenoc_status adrenoc_wait(adrenoc_model* model, int64_t timeout_ms);

/* A file descriptor that poll() and ALooper find readable once the run that was started has ended,
 * until adrenoc_wait tells how.  It is the model's: do not read, write or close it. */
ADRENOC_API adrenoc_status adrenoc_fence(adrenoc_model* model, int* descriptor);

/* Cancel the calls for the model that compute now or wait for their turn to: adrenoc_run, also of
 * adrenoc_run_async, adrenoc_run_repeatedly, adrenoc_verify, adrenoc_profile, adrenoc_generate,
 * adrenoc_answer, adrenoc_continue and adrenoc_logits.
 * From any thread; it returns at once, and they end soon, with ADRENOC_CANCELLED.  Calls that begin
 * later are not meant.
 * How soon: with cancel_within_ms or a limit on submissions, when the piece or the single kernel that
 * is under way has ended; the first run, and profiles, are cut by the former alone, and profiles by
 * neither.  Without, what the device has been given is computed, and a run that has begun ends with
 * ADRENOC_OK.  On the CPU, with the layer.  Tokens end with the one that is under way, prompts with a
 * part of them.
 * What holds then: the model can compute again at once.  Its states are as they were before the call,
 * or what was bound to them; of a decoder that is run by adrenoc_run, the rows up to past_length are.
 * A context holds what it had, the part of a prompt that was taken in and the tokens that were told.
 * Bound outputs may hold anything. */
ADRENOC_API adrenoc_status adrenoc_cancel(adrenoc_model* model);

/* What loads and runs are cancelled by: made before them, named in their options, asked from any
 * thread.  A load ends with ADRENOC_CANCELLED when the kernels that are being built then are, or the constant
 * that is being moved is; files are opened and checked as a whole.  What was built before is not
 * kept.  One that was cancelled stays so: loads and runs that begin later end at once. */
ADRENOC_API adrenoc_status adrenoc_cancellation_create(adrenoc_cancellation** cancellation);
ADRENOC_API adrenoc_status adrenoc_cancellation_cancel(adrenoc_cancellation* cancellation);
ADRENOC_API void adrenoc_cancellation_free(adrenoc_cancellation* cancellation);

/* Times of the load and of the last run that has ended; waits for none that goes on. */
ADRENOC_API adrenoc_status adrenoc_get_times(const adrenoc_model* model, adrenoc_times* times);

/* How the last run that has ended was launched; waits for none that goes on.  The texts are good until
 * the next call of this for the model. */
ADRENOC_API adrenoc_status adrenoc_get_launching(adrenoc_model* model,
                                                 adrenoc_launching* launching);

/* Decoders, which `adrenoc compile` makes of models with past and present keys and values: a model
 * holds a context, which is the tokens of prompts and those that were made.  ADRENOC_UNSUPPORTED of
 * all these functions: the model is no decoder.
 *
 * How tokens are picked, on the GPU.  Set everything to 0 and `struct_bytes` to sizeof first. */
typedef struct adrenoc_generation {
  uint32_t struct_bytes;
  uint32_t max_tokens; /* 0 for as many as there is room for */
  float temperature;   /* 0 takes the likeliest token, higher ones draw more freely */
  uint32_t top_k;      /* draw among so many of the likeliest tokens; 0 for all */
  float top_p;         /* ... and of those among the fewest of so much probability; 0 for all */
  uint64_t seed;       /* the same seed after the same tokens draws the same ones */
  /* After one of these no more are made; NULL for those of the bundle, which are the model's. */
  const int64_t* end_tokens;
  size_t end_count;
  /* Draw among tokens that are at least so likely, the likeliest being 1; 0 for all. */
  float min_p;
  /* Before all that logits are changed: of `bias_count` tokens `bias` is added; of tokens of the
   * context a positive one is divided, a negative one multiplied by repetition_penalty (0 for 1); of
   * tokens that this call has made, frequency_penalty is taken away as often as they were made, and
   * presence_penalty once. */
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;
  const int64_t* bias_tokens;
  const float* bias;
  size_t bias_count;
  /* Of texts: each ends the answer that has it, and is no part of that. */
  const char* const* stop_texts;
  size_t stop_count;
} adrenoc_generation;

/* Is told each token as it comes; other than 0 ends it.  It may call adrenoc_stop, and no other
 * function for the model. */
typedef int (*adrenoc_on_token)(int64_t token, void* user);

/* Take in `count` tokens and make more, after what the context holds.  `how` may be NULL.  A prompt
 * of 0 tokens goes on after the last one that was made.  ADRENOC_CONTEXT_FULL when a token has no
 * room; those before it were told.  An end token is told, too.
 * What a decoder reads beside tokens and caches, as what an encoder has made, or an adapter, is bound
 * as for adrenoc_run, and read at each call; ADRENOC_BAD_ARGUMENT names an input that is not. */
ADRENOC_API adrenoc_status adrenoc_generate(adrenoc_model* model, const int64_t* prompt,
                                            size_t count, const adrenoc_generation* how,
                                            adrenoc_on_token on_token, void* user);

/* The logits of the token that comes after the first `past` tokens of the context and `count` more, for
 * who picks tokens without adrenoc_generate.  The context is these tokens then: what it held behind the
 * first `past` is forgotten.  `logits` has room for the `bytes` bytes of the output of that name of
 * adrenoc_bucket_output_info, bucket 0.  ADRENOC_BAD_ARGUMENT where the context holds fewer than `past`
 * tokens.  Other inputs, and ADRENOC_CONTEXT_FULL, as for adrenoc_generate.  `options` may be NULL. */
ADRENOC_API adrenoc_status adrenoc_logits(adrenoc_model* model, uint64_t past,
                                          const int64_t* tokens, size_t count, void* logits,
                                          size_t bytes, const adrenoc_run_options* options);

/* Text, of a model whose bundle has the tables of its tokenizer: `adrenoc compile` puts them in where a
 * tokenizer.json lies beside the model.  ADRENOC_UNSUPPORTED: it has none.  Texts are UTF-8.
 *
 * The tokens of a text of `bytes` bytes; `with_special` is 1 for those that the tokenizer puts around
 * it, too, such as one that begins a text, else 0.  `count` becomes how many there are;
 * ADRENOC_BAD_ARGUMENT where there is `room` for fewer.  NULL for `tokens` asks only for that. */
ADRENOC_API adrenoc_status adrenoc_encode(adrenoc_model* model, const char* text, size_t bytes,
                                          int with_special, int64_t* tokens, size_t room,
                                          size_t* count);
/* The text of tokens, those left out that are no text, without a 0 behind it; `bytes` becomes how many it
 * has.  NULL for `text`, and `room`, as above. */
ADRENOC_API adrenoc_status adrenoc_decode(adrenoc_model* model, const int64_t* tokens, size_t count,
                                          char* text, size_t room, size_t* bytes);

/* How the model's makers have tokens picked: temperature, top_k, top_p, min_p and penalties of `how`, whose
 * other fields stay.  Without a call of this the likeliest token is taken, by which some models repeat
 * themselves. */
ADRENOC_API adrenoc_status adrenoc_usual_generation(adrenoc_model* model, adrenoc_generation* how);

/* What somebody says in a conversation; `role` is "system", "user" or "assistant". */
typedef struct adrenoc_message {
  const char* role;
  const char* content;
} adrenoc_message;

/* Is told pieces of an answer as they come, which are whole letters, with a 0 behind them; other than 0
 * ends it.  It may call adrenoc_stop, and no other function for the model. */
typedef int (*adrenoc_on_text)(const char* piece, void* user);

/* Have the model answer a whole conversation, as its template writes it: a system's message or none, then
 * a user's and an answer in turns, a user's last.  The context is that conversation then: what it
 * shares with what the context holds is not computed again, unless the model reads what is bound beside
 * tokens, which may be another now.  ADRENOC_UNSUPPORTED, too, where the bundle
 * does not hold how turns are written.  `how` and ADRENOC_CONTEXT_FULL as for adrenoc_generate. */
ADRENOC_API adrenoc_status adrenoc_answer(adrenoc_model* model, const adrenoc_message* messages,
                                          size_t count, const adrenoc_generation* how,
                                          adrenoc_on_text on_text, void* user);
/* Have it go on with a text, which is all that the context holds then. */
ADRENOC_API adrenoc_status adrenoc_continue(adrenoc_model* model, const char* text,
                                            const adrenoc_generation* how, adrenoc_on_text on_text,
                                            void* user);

/* End an adrenoc_generate, adrenoc_answer or adrenoc_continue that goes on, after the token that is under way. */
ADRENOC_API adrenoc_status adrenoc_stop(adrenoc_model* model);

/* How many tokens the context holds, and how many it has room for.  Either may be NULL. */
ADRENOC_API adrenoc_status adrenoc_context(adrenoc_model* model, uint64_t* tokens, uint64_t* rows);

/* Forget all but the first `tokens` tokens.  The next adrenoc_generate then needs a prompt. */
ADRENOC_API adrenoc_status adrenoc_rewind(adrenoc_model* model, uint64_t tokens);

/* Write the context to `data`, which has room for `bytes` bytes; `needed` becomes how many it takes.
 * NULL asks only for that. */
ADRENOC_API adrenoc_status adrenoc_save_context(adrenoc_model* model, void* data, size_t bytes,
                                                size_t* needed);
/* Bring back what was saved of the same model, whose context may have been of another length.
 * ADRENOC_BAD_ARGUMENT, and all as it was, for anything else.  It is not checked beyond its form: a
 * context that somebody else wrote makes other tokens. */
ADRENOC_API adrenoc_status adrenoc_restore_context(adrenoc_model* model, const void* data,
                                                   size_t bytes);

#ifdef __cplusplus
}
#endif

#include "adrenoc_process.h"

#endif /* ADRENOC_H_ */
