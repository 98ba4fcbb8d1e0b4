// Stands in for LLVM's header of this name, which TensorFlow 2.19's headers include and its package lacks.
// Only xla/stream_executor/gpu/tma_metadata.h does, for a class that nothing of ours makes or calls.
#ifndef TF_SMDDP_THIRD_PARTY_TENSORFLOW_STAND_INS_LLVM_ADT_ARRAYREF_H_
#define TF_SMDDP_THIRD_PARTY_TENSORFLOW_STAND_INS_LLVM_ADT_ARRAYREF_H_

namespace llvm {

template <typename Element>
class SmallVector {};

template <typename Element>
class ArrayRef {
 public:
  ArrayRef(const SmallVector<Element>&) {}
};

}  // namespace llvm

#endif  // TF_SMDDP_THIRD_PARTY_TENSORFLOW_STAND_INS_LLVM_ADT_ARRAYREF_H_
