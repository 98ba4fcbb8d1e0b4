// GpuPlaces: which GPU each rank uses, and a warning where that is hardly what was meant.
//
// Place in the stack: below submission.h, which tells the other ranks, and delivery.h, which looks at what
// they have told. Results are right wherever tensors lie; what is warned of costs time and memory. A
// script's choice (tf.config.set_visible_devices) is known only when the first tensor of a GPU is reduced: at
// its end all ranks have arrived with it, and those with a tensor on a GPU have told which it is.
#ifndef TF_SMDDP_KERNELS_ENGINE_DEVICES_GPU_PLACES_H_
#define TF_SMDDP_KERNELS_ENGINE_DEVICES_GPU_PLACES_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "kernels/control/manifest.h"
#include "kernels/engine/job/communicator.h"
#include "kernels/engine/request.h"
#include "kernels/memory/buffer.h"

namespace tf_smddp {

// The device of a request's tensors; nullptr if there is none, or several.
const MemoryKind* DeviceOf(const Request& request);

// All methods: any thread.
class GpuPlaces {
 public:
  // It outlives this.
  explicit GpuPlaces(Communicator* communicator) : communicator_(communicator) {}

  // Before this rank arrives with `request`: tells the others which GPU it uses. Warns of a second one.
  void Tell(const Request& request);

  // All ranks have arrived with `request`. Warns of ranks that share this rank's GPU, and of ranks that
  // have this tensor in the host's memory. Only the first request with a tensor on a GPU is looked at.
  void Look(const Request& request, const Manifest& manifest);

 private:
  // The mistakes; of each, one rank of the host writes one line.
  enum Warning : std::uint32_t { kTwoGpus = 1, kShared = 2, kMixed = 4 };

  std::atomic<std::uint64_t>& Told(int local) const;
  void Warn(Warning warning, const std::string& text) const;

  Communicator* const communicator_;
  std::atomic<bool> looked_{false};
};

}  // namespace tf_smddp

#endif  // TF_SMDDP_KERNELS_ENGINE_DEVICES_GPU_PLACES_H_
