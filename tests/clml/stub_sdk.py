"""Headers in the place of an OpenCL ML SDK's: the names that `clml/real_*` use, types of ours.

They let a compiler find slips in those files.  They say nothing about the real library: names and
orders of arguments are those of the calls in TVM's CLML runtime, all else is made up.
"""

from pathlib import Path

_CL = """
#pragma once
#include <stddef.h>
#include <stdint.h>
typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef float cl_float;
typedef cl_uint cl_bool;
typedef struct _cl_context* cl_context;
typedef struct _cl_command_queue* cl_command_queue;
typedef struct _cl_mem* cl_mem;
typedef struct _cl_event* cl_event;
#define CL_SUCCESS 0
#define CL_TRUE 1
#define CL_FLOAT 0x10DE
#define CL_HALF_FLOAT 0x10DD
#define CL_QUEUE_RECORDABLE_QCOM (1u << 30)
"""

_ENUMS = {
    "cl_arithmetic_mode_qcom": [f"CL_ARITHMETIC_MODE_{m}_QCOM" for m in ("FP32", "FP16")]
    + ["CL_ARITHMETIC_MODE_FP16_ACC32_QCOM"],
    "cl_ml_tensor_layout_qcom": [
        f"CL_TENSOR_LAYOUT_{layout}_QCOM" for layout in ("OPTIMAL", "NCHW", "NHWC")
    ],
    "cl_ml_tensor_num_dimensions_qcom": ["CL_TENSOR_UNUSED_QCOM", "CL_TENSOR_DIMENSIONS_4D_QCOM"],
    "cl_ml_tensor_usage_qcom": [
        f"CL_TENSOR_USAGE_{usage}_QCOM" for usage in ("INVALID", "UNUSED", "PARAMETER", "CNN")
    ],
    "cl_convolution_mode_qcom": [
        f"CL_CONVOLUTION_MODE_{m}_QCOM" for m in ("CONVOLUTION", "DEPTHWISE", "TRANSPOSE")
    ],
    "cl_activation_function_qcom": ["CL_ACTIVATION_RELU", "CL_ACTIVATION_RELU6"],
    "cl_nan_qcom": ["CL_PROPAGATE_NAN_QCOM"],
    "cl_batchnorm_mode_qcom": ["CL_BATCHNORM_MODE_SPATIAL_QCOM"],
    "cl_pooling_mode_qcom": [
        "CL_POOLING_MODE_MAX_QCOM",
        "CL_POOLING_MODE_AVERAGE_EXCLUDE_PADDING_QCOM",
    ],
    "cl_softmax_algorithm_qcom": ["CL_SOFTMAX_ALGORITHM_ACCURATE_QCOM"],
    "cl_softmax_mode_qcom": ["CL_SOFTMAX_MODE_SPATIAL_QCOM"],
    "cl_binary_op_qcom": [
        f"CL_TENSOR_OP_{op}_QCOM" for op in ("ADD", "SUB", "MUL", "DIV", "MIN", "MAX")
    ],
    "cl_gemm_transform_qcom": ["CL_GEMM_TRANSFORM_NONE_QCOM", "CL_GEMM_TRANSFORM_TRANSPOSE_QCOM"],
    "cl_fc_weight_transform_qcom": ["CL_FC_WEIGHT_TRANSFORM_TRANSPOSE_QCOM"],
    "cl_pad_mode_qcom": ["CL_PAD_MODE_CONSTANT_QCOM", "CL_PAD_MODE_REFLECT_QCOM"],
    "cl_clip_mode_qcom": ["CL_CLIP_BY_VALUE_QCOM"],
}

_STRUCTS = {
    "cl_ml_tensor_desc_qcom": "cl_uint type; cl_ml_tensor_layout_qcom layout;"
    " cl_uint n, c, h, w, d; cl_ml_tensor_num_dimensions_qcom num_dimensions; size_t strides[5];",
    "cl_ml_tensor_memory_desc_qcom": "cl_ml_tensor_qcom tensor; cl_mem memory;",
    "cl_ml_op_convolution_desc_qcom": "cl_convolution_mode_qcom mode; cl_uint groups, dims;"
    " cl_uint before[2], after[2], strides[2], dilation[2]; cl_uint flags;"
    " cl_arithmetic_mode_qcom arithmetic;",
    "cl_ml_op_activation_desc_qcom": "cl_activation_function_qcom kind; cl_nan_qcom nan;"
    " cl_arithmetic_mode_qcom arithmetic;",
    "cl_ml_op_batchnorm_desc_qcom": "cl_batchnorm_mode_qcom mode; cl_arithmetic_mode_qcom a;",
    "cl_ml_op_pooling_desc_qcom": "cl_pooling_mode_qcom mode; cl_uint dims; cl_uint before[2],"
    " after[2], strides[2], window[2]; cl_nan_qcom nan; cl_arithmetic_mode_qcom arithmetic;",
    "cl_ml_op_softmax_desc_qcom": "cl_softmax_algorithm_qcom algorithm; cl_softmax_mode_qcom mode;"
    " cl_arithmetic_mode_qcom arithmetic;",
    "cl_ml_scalar": "union { cl_float f32; } value; cl_uint type;",
    "cl_ml_op_binary_desc_qcom": "cl_binary_op_qcom op; cl_ml_scalar a, b, c;"
    " cl_arithmetic_mode_qcom arithmetic;",
    "cl_ml_op_concat_desc_qcom": "cl_uint axis, count; cl_arithmetic_mode_qcom arithmetic;",
    "cl_ml_op_fully_connected_desc_qcom": "cl_uint axis; cl_fc_weight_transform_qcom transform;"
    " cl_arithmetic_mode_qcom arithmetic;",
    "cl_ml_op_gemm_desc_qcom": "cl_uint m, n, k; cl_gemm_transform_qcom a, b;"
    " cl_ml_scalar alpha, beta; cl_arithmetic_mode_qcom arithmetic;",
    "cl_ml_op_pad_desc_qcom": "cl_pad_mode_qcom mode; cl_uint shape[2]; cl_uint widths[8];"
    " cl_arithmetic_mode_qcom arithmetic;",
    "cl_ml_op_clip_desc_qcom": "cl_clip_mode_qcom mode; cl_ml_scalar high, low;"
    " cl_arithmetic_mode_qcom arithmetic;",
    "cl_ml_op_depthtospace_desc_qcom": "cl_uint block; cl_arithmetic_mode_qcom arithmetic;",
    "cl_ml_op_resize_bilinear_desc_qcom": "cl_bool align, half; cl_arithmetic_mode_qcom a;",
}

_HANDLES = (
    *("cl_ml_tensor_qcom", "cl_ml_op_qcom", "cl_ml_tensor_mem_desc_set_qcom"),
    *("cl_ml_tuningcache_qcom", "cl_recording_qcom"),
)

_T, _MAKE = "cl_ml_tensor_qcom", "cl_context, const cl_ml_op_properties_qcom*"
_MADE = "cl_ml_op_qcom*, cl_ml_tuningcache_qcom"
_WAIT = "cl_uint, const cl_event*, cl_event*"
_SET = "cl_ml_tensor_mem_desc_set_qcom"


def _op(desc: str, tensors: int) -> str:
    parts = [_MAKE, *([f"const cl_ml_op_{desc}_desc_qcom*"] if desc else []), *[_T] * tensors]
    return ", ".join([*parts, _MADE])


_CONV = "const cl_ml_op_convolution_desc_qcom*"
_ACT = "const cl_ml_op_activation_desc_qcom*"
_NORM = "const cl_ml_op_batchnorm_desc_qcom*"
_FUNCTIONS = {
    "clGetMLTensorMemorySizeQCOM": f"cl_context, {_T}, uint32_t*",
    "clReleaseMLTensorQCOM": _T,
    "clReleaseMLOpQCOM": "cl_ml_op_qcom",
    "clCreateMLTensorMemoryDescriptorSetQCOM": f"{_SET}*",
    "clUpdateMLTensorMemoryDescriptorSetQCOM": f"{_SET}, uint32_t,"
    " const cl_ml_tensor_memory_desc_qcom*",
    "clReleaseMLTensorMemoryDescriptorSetQCOM": _SET,
    "clEnqueueWriteMLTensorDataQCOM": f"cl_command_queue, void*, cl_ml_tensor_layout_qcom, {_T},"
    f" cl_mem, {_WAIT}",
    "clEnqueueCopyMLTensorDataQCOM": f"cl_command_queue, {_T}, cl_mem, {_T}, cl_mem, {_WAIT}",
    "clEnqueueMLOpQCOM": f"cl_command_queue, cl_ml_op_qcom, {_SET}, {_WAIT}",
    "clEnqueueRecordingMLOpQCOM": "cl_command_queue, cl_recording_qcom, "
    + "size_t, const void*, " * 7
    + _WAIT,
    "clCreateMLTuningCacheQCOM": "cl_ml_tuningcache_qcom*",
    "clReleaseMLTuningCacheQCOM": "cl_ml_tuningcache_qcom",
    "clLoadMLTuningCacheQCOM": "cl_ml_tuningcache_qcom, size_t, const unsigned char*",
    "clSaveMLTuningCacheQCOM": "cl_ml_tuningcache_qcom, size_t, unsigned char*, size_t*",
    "clTuneMLOpQCOM": f"cl_command_queue, cl_ml_op_qcom, {_SET}, cl_ml_tuningcache_qcom,"
    " const void*",
    "clCreateMLOpConvolutionForwardQCOM": _op("convolution", 4),
    "clCreateMLOpFusedConvolutionActivationForwardQCOM": f"{_MAKE}, {_CONV}, {_ACT}, {_T}, {_T},"
    f" {_T}, {_T}, {_T}, {_MADE}",
    "clCreateMLOpFusedConvolutionBatchNormForwardQCOM": f"{_MAKE}, {_CONV}, {_NORM}, "
    + f"{_T}, " * 8
    + _MADE,
    "clCreateMLOpFusedConvolutionBatchNormActivationForwardQCOM": f"{_MAKE}, {_CONV}, {_NORM},"
    f" {_ACT}, " + f"{_T}, " * 9 + _MADE,
    "clCreateMLOpActivationForwardQCOM": _op("activation", 3),
    "clCreateMLOpBatchNormForwardQCOM": _op("batchnorm", 6),
    "clCreateMLOpPoolingForwardQCOM": _op("pooling", 3),
    "clCreateMLOpSoftmaxQCOM": _op("softmax", 2),
    "clCreateMLOpBinaryQCOM": _op("binary", 3),
    "clCreateMLOpConcatQCOM": f"{_MAKE}, const cl_ml_op_concat_desc_qcom*, const {_T}*, {_T},"
    f" {_MADE}",
    "clCreateMLOpReshapeQCOM": _op("", 2),
    "clCreateMLOpFullyConnectedQCOM": _op("fully_connected", 4),
    "clCreateMLOpGemmQCOM": _op("gemm", 3),
    "clCreateMLOpPadQCOM": _op("pad", 2),
    "clCreateMLOpDepthToSpaceQCOM": _op("depthtospace", 2),
    "clCreateMLOpResizeBilinearQCOM": _op("resize_bilinear", 2),
}
_TENSOR = "cl_context, const void*, const cl_ml_tensor_desc_qcom*"


def write_stub_sdk(folder: Path, *, major: int) -> Path:
    """Write the headers of an SDK of interface version `major` into `folder`."""
    include = folder / "include" / "CL"
    include.mkdir(parents=True)
    (include / "cl.h").write_text(_CL)
    (include / "opencl.h").write_text("#pragma once\n#include <CL/cl.h>\n")
    (include / "cl_qcom_ml_ops.h").write_text(_header(major))
    return folder


def _functions(version: int) -> dict[str, str]:
    """The functions of one interface, with the types of what they take."""
    functions = dict(_FUNCTIONS)
    if version >= 2:
        functions["clCreateMLOpClipQCOM"] = _op("clip", 2)
    if version >= 4:
        functions["clCreateMLTensorWithUsageQCOM"] = f"{_TENSOR}, cl_ml_tensor_usage_qcom, {_T}*"
    else:
        functions["clCreateMLTensorQCOM"] = f"{_TENSOR}, {_T}*"
    return functions


def _header(major: int) -> str:
    lines = ["#pragma once", "#include <CL/cl.h>"]
    lines.append(f"#define CL_QCOM_ML_OPS_H_MAJOR_VERSION {major}")
    lines += [f"typedef struct _{name}* {name};" for name in _HANDLES]
    lines += ["typedef int64_t cl_ml_op_properties_qcom;"]
    lines.append("#define CL_ML_BATCH_NORM_OP_EPSILON_QCOM 1")
    lines.append("#define CL_ML_OP_PROPERTY_LIST_END_QCOM 0")
    lines += [f"typedef enum {{ {', '.join(v)} }} {name};" for name, v in _ENUMS.items()]
    lines += [f"typedef struct {{ {body} }} {name};" for name, body in _STRUCTS.items()]
    for version in range(1, major + 1):
        functions = _functions(version).items()
        members = "\n".join(f"  cl_int (*{name})({args});" for name, args in functions)
        lines.append(f"typedef struct {{\n{members}\n}} CLMLInterfaceV{version}QCOM;")
    lines += [
        'extern "C" {',
        "cl_int clQueryMLInterfaceVersionsQCOM(cl_int*, cl_int*, cl_uint, cl_uint*);",
        "cl_int clGetMLInterfaceQCOM(void**, cl_int, cl_int);",
        "cl_recording_qcom clNewRecordingQCOM(cl_command_queue, cl_int*);",
        "cl_int clEndRecordingQCOM(cl_recording_qcom);",
        "}",
    ]
    return "\n".join(lines) + "\n"


def write_stub_library(path: Path, *, major: int) -> Path:
    """Write the source of a library to go with the headers: it counts, and computes nothing.

    It exports `live_clml_objects()`, `fail_clml(call, after)` and `called_clml()`: every call made
    since the library was loaded, with a space between.
    """
    tables = []
    for version in range(1, major + 1):
        members = ",\n".join(_body(name, args) for name, args in _functions(version).items())
        tables.append(f"CLMLInterfaceV{version}QCOM interface_{version} = {{\n{members}\n}};")
    cases = "".join(f"  if (major == {v}) *out = &interface_{v};\n" for v in range(1, major + 1))
    versions = "".join(
        f"    if (majors) majors[{v - 1}] = {v};\n    if (minors) minors[{v - 1}] = 0;\n"
        for v in range(1, major + 1)
    )
    text = _LIBRARY.replace("TABLES", "\n".join(tables))
    text = text.replace("CASES", cases).replace("VERSIONS", versions).replace("COUNT", str(major))
    path.write_text(text)
    return path


_MADE_BY = ("cl_ml_op_qcom*", f"{_T}*", f"{_SET}*", "cl_ml_tuningcache_qcom*")


def _body(name: str, args: str) -> str:
    """A function of the interface as a lambda."""
    types = args.split(", ")
    params = ", ".join(f"{kind} a{i}" for i, kind in enumerate(types))
    made = [i for i, kind in enumerate(types) if kind in _MADE_BY]
    does = ""
    if name.startswith("clRelease"):
        does = "drop(a0);"
    elif name.startswith("clCreate"):
        does = f"make(a{made[0]});"
    elif name == "clGetMLTensorMemorySizeQCOM":
        does = "*a2 = 1 << 16;"
    elif name == "clSaveMLTuningCacheQCOM":
        does = "*a3 = 4;"
    return f'  []({params}) -> cl_int {{ if (fails("{name}")) return -6; {does} return 0; }}'


_LIBRARY = """
#include <CL/cl_qcom_ml_ops.h>

#include <cstdlib>
#include <set>
#include <string>

namespace {
int live = 0, failing_after = 0;
std::string failing;
std::set<std::string>& calls() { static std::set<std::string> all; return all; }
bool fails(const char* call) {
  calls().insert(call);
  if (failing != call || failing_after-- > 0) return false;
  failing.clear();
  return true;
}
template <typename T> void make(T* out) { ++live; *out = static_cast<T>(std::malloc(8)); }
template <typename T> void drop(T handle) { --live; std::free(handle); }
TABLES
}  // namespace

extern "C" {
int live_clml_objects() { return live; }
void fail_clml(const char* call, int after) { failing = call; failing_after = after; }
const char* called_clml() {
  static std::string text;
  text.clear();
  for (const std::string& call : calls()) text += call + " ";
  return text.c_str();
}
cl_int clQueryMLInterfaceVersionsQCOM(cl_int* majors, cl_int* minors, cl_uint, cl_uint* count) {
  if (fails("clQueryMLInterfaceVersionsQCOM")) return -6;
  if (count) *count = COUNT;
VERSIONS  return 0;
}
cl_int clGetMLInterfaceQCOM(void** out, cl_int major, cl_int) {
  if (fails("clGetMLInterfaceQCOM")) return -6;
CASES  return 0;
}
cl_recording_qcom clNewRecordingQCOM(cl_command_queue, cl_int* code) {
  if (fails("clNewRecordingQCOM")) { *code = -6; return nullptr; }
  cl_recording_qcom made;
  make(&made);
  *code = 0;
  return made;
}
cl_int clEndRecordingQCOM(cl_recording_qcom) { return fails("clEndRecordingQCOM") ? -6 : 0; }
cl_int clReleaseRecordingQCOM(cl_recording_qcom value) { drop(value); return 0; }
}
"""
