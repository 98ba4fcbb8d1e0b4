#include "tests/pretend_gpu/policy.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/settings.h"

namespace pretend_gpu {
namespace {

struct Rule {
  std::string role;
  std::optional<Mood> mood;  // none: one of the first three is drawn
};

std::optional<Mood> ReadMood(const std::string& text, const std::string& policy) {
  if (text == "prompt") return Mood::kPrompt;
  if (text == "random") return Mood::kRandom;
  if (text == "lazy") return Mood::kLazy;
  if (text == "paced") return Mood::kPaced;
  if (text == "drawn") return std::nullopt;
  End("the policy '%s' has the mood '%s'; a mood is prompt, random, lazy, drawn or paced, and a policy a "
      "mood or a "
      "list of role=mood",
      policy.c_str(), text.c_str());
}

std::vector<Rule> Read(const std::string& policy) {
  std::vector<Rule> rules;
  for (std::size_t at = 0; at <= policy.size();) {
    const std::size_t end = std::min(policy.find(',', at), policy.size());
    const std::string rule = policy.substr(at, end - at);
    const std::size_t equals = rule.find('=');
    const bool lone = equals == std::string::npos;
    rules.push_back(
        {lone ? "*" : rule.substr(0, equals), ReadMood(lone ? rule : rule.substr(equals + 1), policy)});
    at = end + 1;
  }
  return rules;
}

std::mutex mu;

// Guarded by mu.
std::vector<Rule>& Rules() {
  static auto* rules = new std::vector<Rule>(Read(GetSettings().policy));
  return *rules;
}

}  // namespace

void SetPolicy(const std::string& policy) {
  std::vector<Rule> rules = Read(policy);
  std::lock_guard<std::mutex> lock(mu);
  Rules() = std::move(rules);
}

Mood MoodOf(const std::string& role, std::uint64_t stream_id) {
  std::lock_guard<std::mutex> lock(mu);
  for (const Rule& rule : Rules()) {
    if (rule.role != "*" && role.find(rule.role) == std::string::npos) continue;
    if (rule.mood) return *rule.mood;
    std::mt19937_64 random(GetSettings().seed * 1'000'003 + stream_id);
    return static_cast<Mood>(random() % 3);
  }
  return Mood::kPrompt;
}

}  // namespace pretend_gpu
