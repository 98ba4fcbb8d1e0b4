#include "kernels/control/relay_message.h"

#include <cstring>
#include <type_traits>

namespace tf_smddp {
namespace {

class Writer {
 public:
  template <typename T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void PutText(const std::string& text) {
    Put(static_cast<std::uint64_t>(text.size()));
    bytes_ += text;
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}

  template <typename T>
  bool Get(T* value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (bytes_.size() - at_ < sizeof *value) return false;
    std::memcpy(static_cast<void*>(value), bytes_.data() + at_, sizeof *value);
    at_ += sizeof *value;
    return true;
  }
  // A count of things that take at least `least` bytes each.
  bool GetCount(std::uint64_t* count, std::size_t least) {
    return Get(count) && *count <= (bytes_.size() - at_) / least;
  }
  bool GetText(std::string* text) {
    std::uint64_t size = 0;
    if (!GetCount(&size, 1)) return false;
    text->assign(bytes_, at_, size);
    at_ += size;
    return true;
  }
  bool GetRank(RankId* rank) {
    std::int32_t value = 0;
    if (!Get(&value)) return false;
    *rank = RankId(value);
    return true;
  }
  bool AtEnd() const { return at_ == bytes_.size(); }

 private:
  const std::string& bytes_;
  std::size_t at_ = 0;
};

bool GetPart(Reader* reader, RelayPart* part) {
  std::uint64_t splits = 0;
  if (!reader->GetRank(&part->rank) || !reader->Get(&part->rows) ||
      !reader->GetCount(&splits, sizeof(std::uint64_t))) {
    return false;
  }
  part->splits.resize(splits);
  for (std::uint64_t& rows : part->splits) reader->Get(&rows);
  return true;
}

void Put(const RelayMessage& message, Writer* writer) {
  writer->Put(message.kind);
  writer->Put(message.ticket);
  writer->Put(message.key_hash);
  writer->PutText(message.key);
  writer->Put(message.manifest);
  writer->Put(static_cast<std::uint64_t>(message.parts.size()));
  for (const RelayPart& part : message.parts) {
    writer->Put(static_cast<std::int32_t>(part.rank.value()));
    writer->Put(part.rows);
    writer->Put(static_cast<std::uint64_t>(part.splits.size()));
    for (const std::uint64_t rows : part.splits) writer->Put(rows);
  }
  writer->Put(message.incarnation);
  writer->Put(message.origin);
  writer->PutText(message.text);
  writer->Put(static_cast<std::int32_t>(message.rank.value()));
  writer->Put(static_cast<std::uint8_t>(message.seals));
}

bool Get(Reader* reader, RelayMessage* message) {
  std::uint64_t parts = 0;
  std::uint8_t seals = 0;
  if (!reader->Get(&message->kind) || !reader->Get(&message->ticket) || !reader->Get(&message->key_hash) ||
      !reader->GetText(&message->key) || !reader->Get(&message->manifest) ||
      !reader->GetCount(&parts, sizeof(std::int32_t) + 2 * sizeof(std::uint64_t))) {
    return false;
  }
  message->parts.resize(parts);
  for (RelayPart& part : message->parts) {
    if (!GetPart(reader, &part)) return false;
  }
  if (!reader->Get(&message->incarnation) || !reader->Get(&message->origin) ||
      !reader->GetText(&message->text) || !reader->GetRank(&message->rank) || !reader->Get(&seals)) {
    return false;
  }
  message->seals = seals != 0;
  return true;
}

}  // namespace

std::string Encode(const std::vector<RelayMessage>& messages) {
  Writer writer;
  writer.Put(static_cast<std::uint64_t>(messages.size()));
  for (const RelayMessage& message : messages) Put(message, &writer);
  return writer.Take();
}

bool Decode(const std::string& bytes, std::vector<RelayMessage>* messages) {
  Reader reader(bytes);
  std::uint64_t count = 0;
  if (!reader.GetCount(&count, sizeof(Manifest))) return false;
  messages->clear();
  messages->resize(count);
  for (RelayMessage& message : *messages) {
    if (!Get(&reader, &message)) return false;
  }
  return reader.AtEnd();
}

}  // namespace tf_smddp
