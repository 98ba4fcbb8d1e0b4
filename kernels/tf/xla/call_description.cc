#include "kernels/tf/xla/call_description.h"

#include <cstdlib>
#include <cstring>

namespace tf_smddp {
namespace {

// Numbers end with a space; a text is its length, a colon, and itself.
class Writer {
 public:
  template <typename T>
  void Put(T value) {
    text_ += std::to_string(static_cast<std::int64_t>(value)) + ' ';
  }
  // Bit by bit: decimal text would round.
  void Put(double value) {
    std::int64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    Put(bits);
  }
  void Put(RankId value) { Put(value.value()); }
  void Put(const std::string& value) { text_ += std::to_string(value.size()) + ':' + value; }
  void Put(const std::vector<std::int64_t>& values) {
    Put(values.size());
    for (const std::int64_t value : values) Put(value);
  }

  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

class Reader {
 public:
  Reader(const char* text, std::size_t length) : at_(text), end_(text + length) {}

  template <typename T>
  void Get(T* value) {
    *value = static_cast<T>(Number(' '));
  }
  void Get(double* value) {
    const std::int64_t bits = Number(' ');
    std::memcpy(value, &bits, sizeof bits);
  }
  void Get(RankId* value) { *value = RankId(static_cast<int>(Number(' '))); }
  void Get(std::string* value) {
    const std::size_t length = Count(Number(':'));
    value->assign(at_, length);
    at_ += length;
  }
  void Get(std::vector<std::int64_t>* values) {
    values->resize(Count(Number(' ')));
    for (std::int64_t& value : *values) Get(&value);
  }

  // How many of something follow; each takes a byte at least.
  std::size_t Count(std::int64_t count) {
    if (count >= 0 && count <= end_ - at_) return static_cast<std::size_t>(count);
    good_ = false;
    return 0;
  }

  bool AtEnd() const { return good_ && at_ == end_; }
  bool good() const { return good_; }

 private:
  std::int64_t Number(char end) {
    const auto* stop = static_cast<const char*>(
        good_ ? std::memchr(at_, end, static_cast<std::size_t>(end_ - at_)) : nullptr);
    char* parsed = nullptr;
    std::int64_t number = 0;
    if (stop != nullptr) number = std::strtoll(at_, &parsed, 10);
    if (stop == nullptr || parsed != stop) {
      good_ = false;
      at_ = end_;
      return 0;
    }
    at_ = stop + 1;
    return number;
  }

  const char* at_;
  const char* const end_;
  bool good_ = true;
};

// The same order both ways.
template <typename Stream, typename Description>
void Fields(Stream&& stream, Description* call) {
  stream(&call->operation.kind);
  stream(&call->operation.op);
  stream(&call->operation.root);
  stream(&call->operation.prescale);
  stream(&call->operation.postscale);
  stream(&call->operation.compression);
  stream(&call->communicator);
  stream(&call->has_ticket);
  stream(&call->ticket_number);
  stream(&call->pairing);
  stream(&call->num_params);
  stream(&call->splits);
  stream(&call->place);
  stream(&call->places);
}

template <typename Stream, typename Tensor>
void TensorFields(Stream&& stream, Tensor* tensor) {
  stream(&tensor->dtype);
  stream(&tensor->shape);
  stream(&tensor->label);
  stream(&tensor->meaning.name);
  stream(&tensor->meaning.gradient);
  stream(&tensor->meaning.variable);
  stream(&tensor->param_index);
  stream(&tensor->rows);
}

}  // namespace

std::string CallDescription::Serialize() const {
  Writer writer;
  const auto put = [&writer](const auto* value) { writer.Put(*value); };
  Fields(put, this);
  writer.Put(tensors.size());
  for (const Tensor& tensor : tensors) TensorFields(put, &tensor);
  return writer.Take();
}

bool CallDescription::Parse(const char* text, std::size_t length, CallDescription* description) {
  Reader reader(text, length);
  const auto get = [&reader](auto* value) { reader.Get(value); };
  Fields(get, description);
  std::int64_t count = 0;
  reader.Get(&count);
  description->tensors.resize(reader.Count(count));
  for (Tensor& tensor : description->tensors) TensorFields(get, &tensor);
  return reader.AtEnd();
}

Request CallDescription::MakeRequest(std::size_t index, std::int64_t ticket) const {
  const Tensor& tensor = tensors[index];
  Request request;
  request.communicator = communicator;
  request.operation = operation;
  request.operation.dtype = tensor.dtype;
  request.shape = tensor.shape;
  request.splits = splits;
  request.label = tensor.label;
  request.meaning = tensor.meaning;
  request.pairing.kind = pairing;
  request.pairing.param_index = tensor.param_index;
  request.pairing.num_params = num_params;
  if (has_ticket) {
    request.pairing.kind = ticket >= 0 ? Pairing::kGroup : Pairing::kName;
    if (ticket >= 0) request.pairing.ticket = static_cast<std::uint64_t>(ticket);
  }
  if (request.pairing.kind == Pairing::kName) request.pairing.name = tensor.label;
  return request;
}

}  // namespace tf_smddp
