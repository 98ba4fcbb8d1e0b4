// The table of the element types. Everything that knows all types reads it: the enum and its properties
// (types.h), the choice of reduction kernels (kernels/reduce/reduce.cc), the ops' type lists
// (ops/type_list.h) and the mapping from TensorFlow's types (kernels/tf/conversions.cc). Python takes its
// list from the ops.
//
// To add a type: append a line here, and add its reduction kernels to a file in kernels/reduce.
//
// Place in the stack: the bottom. This is the one header of the project that ops/ may include.
#ifndef TF_SMDDP_KERNELS_COMMON_DTYPE_TABLE_H_
#define TF_SMDDP_KERNELS_COMMON_DTYPE_TABLE_H_

// Calls X once for each type, and puts SEPARATOR between two calls. The columns are:
//
//   enumerator   of DType, without the k. The position in this table is the enumerator's value, which is part
//                of the shared-memory manifest: append lines, and never reorder them.
//   name         NumPy's
//   TensorFlow   the type's name in an op's type list, and its enumerator in tensorflow::DataType without DT_
//   bytes        of one element
//   arithmetic   of enum Arithmetic (types.h), without the k: what can be done to elements
//   kernels      the file in kernels/reduce that has the type's kernels; see kernels/reduce/kernel.h
// clang-format off
#define TF_SMDDP_DTYPES(X, SEPARATOR)                                                            \
  X(Float16, float16, half, HALF, 2, Float, Half) SEPARATOR                                      \
  X(BFloat16, bfloat16, bfloat16, BFLOAT16, 2, Float, Half) SEPARATOR                            \
  X(Float32, float32, float, FLOAT, 4, Float, Float) SEPARATOR                                   \
  X(Float64, float64, double, DOUBLE, 8, Float, Float) SEPARATOR                                 \
  X(Int32, int32, int32, INT32, 4, Integer, Integer) SEPARATOR                                   \
  X(Int64, int64, int64, INT64, 8, Integer, Integer) SEPARATOR                                   \
  X(UInt8, uint8, uint8, UINT8, 1, Integer, NarrowInteger) SEPARATOR                             \
  X(Bool, bool, bool, BOOL, 1, Logical, NarrowInteger) SEPARATOR                                 \
  X(Int8, int8, int8, INT8, 1, Integer, NarrowInteger) SEPARATOR                                 \
  X(Int16, int16, int16, INT16, 2, Integer, NarrowInteger) SEPARATOR                             \
  X(UInt16, uint16, uint16, UINT16, 2, Integer, NarrowInteger) SEPARATOR                         \
  X(UInt32, uint32, uint32, UINT32, 4, Integer, Integer) SEPARATOR                               \
  X(UInt64, uint64, uint64, UINT64, 8, Integer, Integer) SEPARATOR                               \
  X(Complex64, complex64, complex64, COMPLEX64, 8, Complex, Complex) SEPARATOR                   \
  X(Complex128, complex128, complex128, COMPLEX128, 16, Complex, Complex)
// clang-format on

#endif  // TF_SMDDP_KERNELS_COMMON_DTYPE_TABLE_H_
