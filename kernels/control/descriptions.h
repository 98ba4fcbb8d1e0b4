// Descriptions: what hosts tell each other about a tensor once, and then name by a number.
//
// Place in the stack: above manifest.h, below relay_message.h.
//
// Whoever sends messages about tensors gives each description a number of its own, and sends it along with
// the first message (SentNumbers). Later messages have the number alone. The receiver keeps a list for each
// sender (KnownNumbers). So the hosts agree on nothing: a number means what its sender has said, and the
// messages of one sender arrive in their order.
#ifndef TF_SMDDP_KERNELS_CONTROL_DESCRIPTIONS_H_
#define TF_SMDDP_KERNELS_CONTROL_DESCRIPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kernels/control/manifest.h"

namespace tf_smddp {

struct Description {
  std::uint64_t key_hash = 0;
  std::string key;               // between hosts: Sequencer::KeyBetweenHosts in kernels/engine
  Manifest manifest = {};        // all zeros in a launch: every rank that takes part has it
  std::uint32_t key_number = 0;  // equal keys, and no others, have equal numbers; set by Descriptions
};

using SharedDescription = std::shared_ptr<const Description>;

// The descriptions that this process has from anybody. Equal ones are one object, as long as somebody holds
// it, so that the head keeps one for all hosts. One thread at a time.
class Descriptions {
 public:
  // Returns the object that is equal to `description`.
  SharedDescription Share(Description description);

  // Returns the description of the same key without a manifest.
  SharedDescription KeyOf(const Description& description);

 private:
  struct Hash {
    std::size_t operator()(const SharedDescription& description) const;
  };
  struct Same {
    bool operator()(const SharedDescription& a, const SharedDescription& b) const;
  };

  std::unordered_set<SharedDescription, Hash, Same> all_;
  std::size_t most_ = 1024;  // then those that nobody holds are thrown away
  std::map<std::pair<std::uint64_t, std::string>, std::uint32_t> key_numbers_;
};

// The numbers, from 1, of the descriptions that were sent to one receiver, or to several that get the same.
// When there are kMost, it begins again: descriptions are sent along anew, and the receiver's list is
// overwritten.
class SentNumbers {
 public:
  static constexpr std::uint32_t kMost = 8192;

  // Returns the number of `description`; *is_new: the description must be sent along.
  std::uint32_t NumberOf(const SharedDescription& description, bool* is_new);

 private:
  std::unordered_map<SharedDescription, std::uint32_t> numbers_;
};

// The meanings of one sender's numbers; number n at n - 1.
using KnownNumbers = std::vector<SharedDescription>;

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_CONTROL_DESCRIPTIONS_H_
