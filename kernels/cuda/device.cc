#include "kernels/cuda/device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

namespace tf_smddp::cuda {
namespace {

DeviceAddress AddressOf(const void* data) { return reinterpret_cast<DeviceAddress>(data); }

// The halves are combined so that UUIDs that differ in one half only have different numbers.
std::uint64_t NumberOf(const Uuid& uuid) {
  std::uint64_t halves[2];
  static_assert(sizeof halves == sizeof uuid.bytes);
  std::memcpy(halves, uuid.bytes, sizeof halves);
  const std::uint64_t number = halves[0] ^ (halves[1] << 1 | halves[1] >> 63);
  return number == 0 ? 1 : number;
}

// The hexadecimal digits of a PCI address as one number, which is not 0.
std::uint64_t BoardOf(std::string bus) {
  bus.erase(std::remove_if(bus.begin(), bus.end(), [](char each) { return each == ':' || each == '.'; }),
            bus.end());
  return std::strtoull(bus.c_str(), nullptr, 16) + 1;
}

}  // namespace

Status Device::Of(Stream compute, Device** device) {
  static auto& mu = *new std::mutex;
  static auto& devices = *new std::map<Context, Device*>;  // their threads outlive static destructors
  Status status;
  const Driver* const driver = Driver::Get(&status);
  if (driver == nullptr) return status;
  Context context = nullptr;
  status = driver->Check("cuStreamGetCtx", driver->StreamGetCtx(compute, &context));
  if (!status.ok()) return status;
  std::lock_guard<std::mutex> lock(mu);
  Device*& known = devices[context];
  if (known == nullptr) {
    std::unique_ptr<Device> opening(new Device(driver, context));
    status = opening->Open();
    if (!status.ok()) return status;
    known = opening.release();
  }
  *device = known;
  return {};
}

Status Device::Open() {
  const CurrentContext current(driver_, context_);
  Status status = driver_->Check("cuCtxGetDevice", driver_->CtxGetDevice(&number_));
  if (status.ok()) status = driver_->Check("cuDeviceGetUuid", driver_->DeviceGetUuid(&uuid_, number_));
  id_ = NumberOf(uuid_);
  char bus[32] = "";  // "0000:65:00.0"
  if (status.ok()) {
    status = driver_->Check("cuDeviceGetPCIBusId", driver_->DeviceGetPCIBusId(bus, sizeof bus, number_));
  }
  board_ = BoardOf(bus);
  return status;
}

std::string Device::Describe() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = name() + " (UUID ";
  for (std::size_t i = 0; i < sizeof uuid_.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid_.bytes[i]);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text + ")";
}

Status Device::NewStream(const char* thread, std::unique_ptr<OwnStream>* stream) {
  return OwnStream::Open(driver_, context_, events_, thread, stream);
}

Status Device::Mark(Order* order) {
  Event reached;
  const Status status = events_->Record(order->compute, &reached);
  if (status.ok()) std::atomic_store(&order->reached, std::move(reached));
  return status;
}

Status Device::CopyInOrder(Stream compute, const void* from, void* to, std::uint64_t bytes) {
  const CurrentContext current(driver_, context_);
  return driver_->Check("cuMemcpyDtoDAsync",
                        driver_->MemcpyDtoDAsync(AddressOf(to), AddressOf(from), bytes, compute));
}

template <typename Begin>
Status Device::Put(CopyStream* on, const Order& order, Begin begin, Ended ended) {
  const CurrentContext current(driver_, context_);
  std::lock_guard<std::mutex> lock(on->mu);
  Status status = on->stream == nullptr ? NewStream(on->thread, &on->stream) : Status();
  if (status.ok()) status = on->stream->WaitFor(order.Reached());
  if (status.ok()) status = begin(on->stream->handle());
  return status.ok() ? on->stream->WhenReached(std::move(ended)) : status;
}

// The op's tensors live until the copy has ended.
template <typename Begin>
Status Device::PutUse(CopyStream* on, const Order& order, Begin begin, Ended ended) {
  order.writes->Begin();
  const Status status =
      Put(on, order, begin, [ended = std::move(ended), writes = order.writes](const Status& outcome) {
        ended(outcome);
        writes->End(outcome);
      });
  if (!status.ok()) order.writes->End(status);
  return status;
}

Status Device::CopyToHost(const void* from, void* to, std::uint64_t bytes, void* stream, Ended ended) {
  const auto copy = [&](Stream on) {
    return driver_->Check("cuMemcpyDtoHAsync", driver_->MemcpyDtoHAsync(to, AddressOf(from), bytes, on));
  };
  return PutUse(&to_host_, *static_cast<const Order*>(stream), copy, std::move(ended));
}

Status Device::CopyFromHost(const void* from, void* to, std::uint64_t bytes, void* stream, Ended ended) {
  const auto copy = [&](Stream on) {
    return driver_->Check("cuMemcpyHtoDAsync", driver_->MemcpyHtoDAsync(AddressOf(to), from, bytes, on));
  };
  return PutUse(&to_device_, *static_cast<const Order*>(stream), copy, std::move(ended));
}

Status Device::Copy(const InputBuffer& from, const Buffer& to, std::uint64_t bytes, Ended ended) {
  const auto copy = [&](Stream on) {
    const Status status = to_device_.stream->WaitFor(static_cast<const Order*>(from.stream)->Reached());
    return status.ok()
               ? driver_->Check("cuMemcpyDtoDAsync",
                                driver_->MemcpyDtoDAsync(AddressOf(to.data), AddressOf(from.data), bytes, on))
               : status;
  };
  return PutUse(&to_device_, *static_cast<const Order*>(to.stream), copy, std::move(ended));
}

std::function<bool()> Device::Writing(void* stream) const {
  return [writes = static_cast<const Order*>(stream)->writes] { return writes->under_way(); };
}

Status Device::Pin(void* data, std::uint64_t bytes) {
  const CurrentContext current(driver_, context_);
  return driver_->Check("cuMemHostRegister", driver_->MemHostRegister(data, bytes, kHostRegisterPortable));
}

// The memory is about to be used for other things, which an error here does not change.
void Device::Unpin(void* data) {
  const CurrentContext current(driver_, context_);
  static_cast<void>(driver_->MemHostUnregister(data));
}

}  // namespace tf_smddp::cuda
