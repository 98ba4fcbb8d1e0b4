// CallDescription: the parameters of one custom call in a compiled program. XLA stores them as a text beside
// the call and hands them to it when it runs.
//
// Place in the stack: between the code that emits the calls (call_emitter.h) and the code that runs them
// (calls.h). It holds no pointers, since a program may be kept and run later. Uses no header of
// TensorFlow's or XLA's.
#ifndef TF_SMDDP_KERNELS_TF_XLA_CALL_DESCRIPTION_H_
#define TF_SMDDP_KERNELS_TF_XLA_CALL_DESCRIPTION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/engine/request.h"

namespace tf_smddp {

struct CallDescription {
  struct Tensor {
    DType dtype = DType::kFloat32;
    std::vector<std::int64_t> shape;  // of the input
    std::string label;
    Meaning meaning;
    std::uint32_t param_index = 0;
    // How many rows of the output the program expects from each rank (kReducescatter: of this rank's shard);
    // empty where the output is like the input.
    std::vector<std::int64_t> rows;
  };

  Operation operation;  // without the dtype, which each tensor has
  CommunicatorId communicator = kWorld;
  bool has_ticket = false;  // an operand says how the tensors pair
  // The number of a ticket that a call of the same computation draws: not 0, and different for different
  // tickets in this process.
  std::uint64_t ticket_number = 0;
  Pairing::Kind pairing = Pairing::kSequence;  // without one
  std::uint32_t num_params = 1;
  std::vector<std::int64_t> splits;  // kAlltoall
  std::vector<Tensor> tensors;       // a barrier has one, without elements

  // If a call starts or finishes one tensor of a group: the tensor's place among them in that order.
  std::uint32_t place = 0;
  std::uint32_t places = 1;

  std::string Serialize() const;
  // False for what Serialize did not write.
  static bool Parse(const char* text, std::size_t length, CallDescription* description);

  // The request of tensor number `index`; the rest of it, memory and `done`, is the caller's. `ticket`: the
  // operand's value, if there is one; negative to pair by name.
  Request MakeRequest(std::size_t index, std::int64_t ticket) const;
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_TF_XLA_CALL_DESCRIPTION_H_
