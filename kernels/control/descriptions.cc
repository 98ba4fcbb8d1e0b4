#include "kernels/control/descriptions.h"

#include <algorithm>

namespace tf_smddp {

std::size_t Descriptions::Hash::operator()(const SharedDescription& description) const {
  const Manifest& manifest = description->manifest;
  std::uint64_t hash = description->key_number;
  for (const std::uint64_t part : {manifest.dims_hash, manifest.count, manifest.meaning.name,
                                   std::uint64_t{manifest.meaning.variable}}) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

bool Descriptions::Same::operator()(const SharedDescription& a, const SharedDescription& b) const {
  return a->key_number == b->key_number && IdenticalManifests(a->manifest, b->manifest);
}

SharedDescription Descriptions::Share(Description description) {
  const auto next = static_cast<std::uint32_t>(key_numbers_.size());
  description.key_number =
      key_numbers_.try_emplace({description.key_hash, description.key}, next).first->second;
  if (all_.size() >= most_) {
    for (auto each = all_.begin(); each != all_.end();) {
      each = each->use_count() == 1 ? all_.erase(each) : std::next(each);
    }
    most_ = std::max<std::size_t>(1024, 2 * all_.size());
  }
  return *all_.insert(std::make_shared<const Description>(std::move(description))).first;
}

SharedDescription Descriptions::KeyOf(const Description& description) {
  Description key;
  key.key_hash = description.key_hash;
  key.key = description.key;
  return Share(std::move(key));
}

std::uint32_t SentNumbers::NumberOf(const SharedDescription& description, bool* is_new) {
  const auto found = numbers_.find(description);
  *is_new = found == numbers_.end();
  if (!*is_new) return found->second;
  if (numbers_.size() == kMost) numbers_.clear();
  const auto number = static_cast<std::uint32_t>(numbers_.size() + 1);
  numbers_.emplace(description, number);
  return number;
}

}  // namespace tf_smddp
