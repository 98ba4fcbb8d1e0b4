// Manifest: the properties of a request that must be equal on all ranks that meet in it.
//
// Place in the stack: above common/. The first rank to arrive writes its manifest into shared memory, and
// each later one compares. Since it lies there, it is plain data of a fixed size.
#ifndef TF_SMDDP_KERNELS_CONTROL_MANIFEST_H_
#define TF_SMDDP_KERNELS_CONTROL_MANIFEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/operation.h"
#include "kernels/common/types.h"

namespace tf_smddp {

// The meaning that a tensor has for the user. Tensors of equal shapes that mean different things must not
// meet.
struct Meaning {
  std::uint64_t name = 0;      // a hash of the name that the user gave (HashOfName); 0: there is none
  std::uint32_t gradient = 0;  // of a gradient: its place in the list, from 1, in which those that are None
                               // count; 0: it is no gradient
  std::uint32_t variable = 0;  // the number of the gradient's variable, which is the same on all ranks; 0:
                               // not known, and compared with no other
};

// Returns a number that differs between names, and is never 0.
std::uint64_t HashOfName(const std::string& name);

struct Manifest {
  static constexpr int kShownDims = 8;
  static constexpr int kLabelBytes = 95;

  Operation operation;       // with the default op and factors where they have no meaning
  std::uint32_t num_params;  // the tensors of the group; 0 if the request is in no group
  std::uint32_t param_index;
  std::uint64_t count;      // of elements; of one row, where the first dimension may differ
  std::uint64_t dims_hash;  // of all dimensions; without the first one, where it may differ
  Meaning meaning;
  std::int64_t dims[kShownDims];  // the first ones, for messages
  std::uint8_t shape_rank;        // the number of dimensions
  char label[kLabelBytes];        // for messages, cut to fit (utf8.h); it may differ between ranks
};

// Makes the manifest of a request. `shape` is in elements, and `label` is cut to fit.
Manifest MakeManifest(const Operation& operation, std::uint32_t param_index, std::uint32_t num_params,
                      const std::vector<std::int64_t>& shape, const std::string& label,
                      const Meaning& meaning = {});

// Tells whether two requests may meet, since their manifests are equal apart from the label.
bool SameManifest(const Manifest& a, const Manifest& b);

// Tells whether they are equal in everything, the label included.
bool IdenticalManifests(const Manifest& a, const Manifest& b);

// Returns the likely cause and the remedy if SameManifest is false, for messages that show both manifests.
std::string DescribeCause(const Manifest& a, const Manifest& b);

// Returns a text such as "allreduce 'dense/kernel' average float32 [64, 10], parameter 3 of 214". The
// manifest may hold any bytes, since a peer may have written it.
std::string DescribeManifest(const Manifest& manifest);

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_MANIFEST_H_
