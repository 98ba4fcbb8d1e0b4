#include "tests/pretend_gpu/ptx_steps.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>
#include <type_traits>
#include <utility>

namespace pretend_gpu {
namespace {

using Places = std::vector<std::size_t>;

template <class T>
T Get(const PtxThread& thread, std::size_t place) {
  T value;
  std::memcpy(&value, &thread.registers[place], sizeof(value));
  return value;
}

template <class T>
void Set(PtxThread& thread, std::size_t place, T value) {
  thread.registers[place] = 0;
  std::memcpy(&thread.registers[place], &value, sizeof(value));
}

// Calls `make` with a value of the type that an instruction's suffix names.
template <class Make>
PtxStep WithInteger(const std::string& type, Make make) {
  if (type == "u8" || type == "b8") return make(std::uint8_t());
  if (type == "s8") return make(std::int8_t());
  if (type == "u16" || type == "b16") return make(std::uint16_t());
  if (type == "s16") return make(std::int16_t());
  if (type == "u32" || type == "b32") return make(std::uint32_t());
  if (type == "s32") return make(std::int32_t());
  if (type == "u64" || type == "b64") return make(std::uint64_t());
  if (type == "s64") return make(std::int64_t());
  return nullptr;
}

// Predicates, too.
template <class Make>
PtxStep WithBits(const std::string& type, Make make) {
  return type == "pred" ? make(bool()) : WithInteger(type, make);
}

template <class Make>
PtxStep WithFloat(const std::string& type, Make make) {
  if (type == "f32") return make(float());
  if (type == "f64") return make(double());
  return nullptr;
}

template <class Make>
PtxStep WithType(const std::string& type, Make make) {
  PtxStep step = WithInteger(type, make);
  return step ? step : WithFloat(type, make);
}

// Arithmetic that wraps: that of signed integers in C++ does not, nor does that of narrow ones, which C++
// does as int.
template <class T>
auto Wrapping(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return value;
  } else {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<std::common_type_t<Unsigned, unsigned>>(static_cast<Unsigned>(value));
  }
}

template <class Function>
auto Unary(Places at, Function function) {
  return [=](auto t) -> PtxStep {
    using T = decltype(t);
    return [=](PtxThread& thread) { Set<T>(thread, at[0], static_cast<T>(function(Get<T>(thread, at[1])))); };
  };
}

template <class Function>
auto Binary(Places at, Function function) {
  return [=](auto t) -> PtxStep {
    using T = decltype(t);
    return [=](PtxThread& thread) {
      Set<T>(thread, at[0], static_cast<T>(function(Get<T>(thread, at[1]), Get<T>(thread, at[2]))));
    };
  };
}

// a * b + c: of floating-point values rounded once.
auto MultiplyAdd(Places at) {
  return [=](auto t) -> PtxStep {
    using T = decltype(t);
    return [=](PtxThread& thread) {
      const T a = Get<T>(thread, at[1]), b = Get<T>(thread, at[2]), c = Get<T>(thread, at[3]);
      if constexpr (std::is_floating_point_v<T>) {
        Set<T>(thread, at[0], std::fma(a, b, c));
      } else {
        Set<T>(thread, at[0], static_cast<T>(Wrapping(a) * Wrapping(b) + Wrapping(c)));
      }
    };
  };
}

auto Wide(Places at) {
  return [=](auto t) -> PtxStep {
    using T = decltype(t);
    using Product = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    return [=](PtxThread& thread) {
      const Product product = Product{Get<T>(thread, at[1])} * Product{Get<T>(thread, at[2])};
      if constexpr (sizeof(T) == 4) Set<Product>(thread, at[0], product);
      if constexpr (sizeof(T) == 2) Set<std::uint32_t>(thread, at[0], static_cast<std::uint32_t>(product));
    };
  };
}

const auto kMin = [](auto a, auto b) {
  if constexpr (std::is_floating_point_v<decltype(a)>) return std::fmin(a, b);
  return std::min(a, b);
};
const auto kMax = [](auto a, auto b) {
  if constexpr (std::is_floating_point_v<decltype(a)>) return std::fmax(a, b);
  return std::max(a, b);
};
const auto kDivide = [](auto a, auto b) {
  if constexpr (std::is_floating_point_v<decltype(a)>) return a / b;
  return b == 0 ? static_cast<decltype(a)>(-1) : static_cast<decltype(a)>(a / b);
};
const auto kAbsolute = [](auto a) { return a < 0 ? Wrapping(decltype(a){}) - Wrapping(a) : Wrapping(a); };

template <class T>
using Comparison = bool (*)(T a, T b);

// Returns null if there is no such comparison. "equ", "neu" and so on also hold if an operand is NaN.
template <class T>
Comparison<T> ComparisonOf(const std::string& how) {
  if (how == "num") return [](T a, T b) { return a == a && b == b; };
  if (how == "nan") return [](T a, T b) { return a != a || b != b; };
  if (how == "eq") return [](T a, T b) { return a == b; };
  if (how == "ne") return [](T a, T b) { return a < b || a > b; };
  if (how == "lt" || how == "lo") return [](T a, T b) { return a < b; };
  if (how == "le" || how == "ls") return [](T a, T b) { return a <= b; };
  if (how == "gt" || how == "hi") return [](T a, T b) { return a > b; };
  if (how == "ge" || how == "hs") return [](T a, T b) { return a >= b; };
  if (how == "equ") return [](T a, T b) { return !(a < b || a > b); };
  if (how == "neu") return [](T a, T b) { return !(a == b); };
  if (how == "ltu") return [](T a, T b) { return !(a >= b); };
  if (how == "leu") return [](T a, T b) { return !(a > b); };
  if (how == "gtu") return [](T a, T b) { return !(a <= b); };
  if (how == "geu") return [](T a, T b) { return !(a < b); };
  return nullptr;
}

PtxStep SetPredicate(const PtxInstruction& instruction, const Places& at) {
  const std::string how = instruction.name[1];
  return WithType(instruction.name.back(), [=](auto t) -> PtxStep {
    using T = decltype(t);
    const Comparison<T> compare = ComparisonOf<T>(how);
    if (compare == nullptr) return nullptr;
    return [=](PtxThread& thread) {
      Set<bool>(thread, at[0], compare(Get<T>(thread, at[1]), Get<T>(thread, at[2])));
    };
  });
}

PtxStep Select(const std::string& type, const Places& at) {
  return WithType(type, [=](auto t) -> PtxStep {
    using T = decltype(t);
    return [=](PtxThread& thread) {
      Set<T>(thread, at[0], Get<T>(thread, Get<bool>(thread, at[3]) ? at[1] : at[2]));
    };
  });
}

// The amount has 32 bits, and is the width of the type at most.
PtxStep Shift(bool left, const std::string& type, const Places& at) {
  return WithInteger(type, [=](auto t) -> PtxStep {
    using T = decltype(t);
    return [=](PtxThread& thread) {
      const T value = Get<T>(thread, at[1]);
      const std::uint32_t amount = Get<std::uint32_t>(thread, at[2]);
      const bool all = amount >= 8 * sizeof(T);
      const T shifted = left ? (all ? T(0) : static_cast<T>(Wrapping(value) << amount))
                             : static_cast<T>(value >> (all ? 8 * sizeof(T) - 1 : amount));
      Set<T>(thread, at[0], !left && all && value > 0 ? T(0) : shifted);
    };
  });
}

// bfe: so many bits of a value, from a position on. Beyond the value are zeros.
PtxStep ExtractBits(const std::string& type, const Places& at) {
  if (type != "u32") return nullptr;
  return [=](PtxThread& thread) {
    const std::uint64_t value = Get<std::uint32_t>(thread, at[1]);
    const std::uint32_t position = Get<std::uint32_t>(thread, at[2]) & 255;
    const std::uint32_t length = Get<std::uint32_t>(thread, at[3]) & 255;
    const std::uint64_t from_there = position < 32 ? value >> position : 0;
    const std::uint64_t mask = length < 32 ? (std::uint64_t{1} << length) - 1 : ~std::uint64_t{0};
    Set<std::uint32_t>(thread, at[0], static_cast<std::uint32_t>(from_there & mask));
  };
}

// With a number, which may have half precision: in C++, that is no arithmetic type.
template <class Make>
PtxStep WithNumber(const std::string& type, Make make) {
  return type == "f16" ? make(_Float16()) : WithType(type, make);
}

// cvt.to.from: between integers, and from integers to floating-point values and among these.
PtxStep Convert(const PtxInstruction& instruction, const Places& at) {
  const std::string& to = instruction.name[instruction.name.size() - 2];
  return WithNumber(instruction.name.back(), [&](auto f) -> PtxStep {
    using From = decltype(f);
    return WithNumber(to, [=](auto t) -> PtxStep {
      using To = decltype(t);
      if (!std::is_integral_v<From> && std::is_integral_v<To>) return nullptr;
      return [=](PtxThread& thread) { Set<To>(thread, at[0], static_cast<To>(Get<From>(thread, at[1]))); };
    });
  });
}

template <class T>
using Extended = std::conditional_t<std::is_integral_v<T> && std::is_signed_v<T>, std::int64_t, T>;

// Loads and stores of one value or several: [%rd1+16], {%f1, %f2}.
PtxStep Access(const PtxInstruction& instruction, PtxRegisters& registers) {
  const bool load = instruction.name[0] == "ld";
  std::string address = instruction.operands[load ? 1 : 0];
  std::string values = instruction.operands[load ? 0 : 1];
  address = address.substr(1, address.size() - 2);
  const std::size_t plus = std::min(address.find('+'), address.size());
  const std::int64_t offset = plus < address.size() ? std::atoll(address.c_str() + plus + 1) : 0;
  const std::string& type = instruction.name.back();
  if (!registers.CanPlace(address.substr(0, plus))) return nullptr;
  const std::size_t base = registers.PlaceOf(address.substr(0, plus), "u64");
  Places places;
  if (values[0] == '{') values = values.substr(1, values.size() - 2);
  for (const std::string& value : SplitOperands(values)) {
    if (!registers.CanPlace(value)) return nullptr;
    places.push_back(registers.PlaceOf(value, type));
  }
  if (instruction.name[1] == "param" && !load) return nullptr;
  return WithType(type, [=](auto t) -> PtxStep {
    using T = decltype(t);
    return [=](PtxThread& thread) {
      T* at = reinterpret_cast<T*>(Get<std::int64_t>(thread, base) + offset);
      for (const std::size_t place : places) {
        // A register may be wider than what is loaded, which then keeps its sign.
        if (load) Set<Extended<T>>(thread, place, *at);
        if (!load) *at = Get<T>(thread, place);
        at++;
      }
    };
  });
}

// Whether the parts between the op and the last type are known. Others would change what the instruction
// does.
bool PartsAreKnown(const std::vector<std::string>& name) {
  static const auto* const known = new std::set<std::string>{
      "global", "param", "nc", "v2", "v4", "to", "lo", "wide", "rn", "ftz", "approx", "full"};
  for (std::size_t i = 1; i + 1 < name.size(); i++) {
    const bool comparison = name[0] == "setp" && i == 1;
    const bool type = name[0] == "cvt" && i + 2 == name.size();
    if (!comparison && !type && known->count(name[i]) == 0) return false;
  }
  return true;
}

bool IsConstant(const std::string& operand) {
  return std::isdigit(static_cast<unsigned char>(operand[0])) || operand[0] == '-';
}

}  // namespace

bool PtxRegisters::CanPlace(const std::string& operand) const {
  if (IsConstant(operand) || places_.count(operand) > 0) return true;
  // A register of the program is letters and a number; others, such as %laneid, have a meaning.
  return operand[0] == '%' && std::isdigit(static_cast<unsigned char>(operand.back())) &&
         operand.find_first_of("|.") == std::string::npos;
}

std::size_t PtxRegisters::PlaceOf(const std::string& operand, const std::string& type) {
  const bool constant = IsConstant(operand);
  const auto [place, is_new] = places_.try_emplace(constant ? type + operand : operand, initial_.size());
  if (!is_new) return place->second;
  std::uint64_t value = 0;
  if (constant) {
    const bool bits = operand.rfind("0f", 0) == 0 || operand.rfind("0d", 0) == 0;
    const char* digits = operand.c_str() + (bits ? 2 : 0);
    value = operand[0] == '-' ? static_cast<std::uint64_t>(std::strtoll(digits, nullptr, 10))
                              : std::strtoull(digits, nullptr, bits ? 16 : 0);
  }
  initial_.push_back(value);
  return place->second;
}

PtxStep MakePtxStep(const PtxInstruction& instruction, PtxRegisters& registers) {
  const std::vector<std::string>& name = instruction.name;
  const std::string& op = name[0];
  const std::string& type = name.back();
  const auto has = [&](const char* part) { return std::find(name.begin(), name.end(), part) != name.end(); };
  if (!PartsAreKnown(name)) return nullptr;
  if ((op == "ld" || op == "st") && (has("global") || has("param"))) return Access(instruction, registers);
  Places at;
  for (const std::string& operand : instruction.operands) {
    if (!registers.CanPlace(operand)) return nullptr;
    at.push_back(registers.PlaceOf(operand, type));
  }
  if (op == "mov" && type == "pred") return Unary(at, [](bool a) { return a; })(bool());
  if (op == "mov" || op == "cvta") return WithType(type, Unary(at, [](auto a) { return a; }));
  if (op == "cvt") return Convert(instruction, at);
  if (op == "setp" && at.size() == 3) return SetPredicate(instruction, at);
  if (op == "selp") return Select(type, at);
  if (op == "add")
    return WithType(type, Binary(at, [](auto a, auto b) { return Wrapping(a) + Wrapping(b); }));
  if (op == "sub")
    return WithType(type, Binary(at, [](auto a, auto b) { return Wrapping(a) - Wrapping(b); }));
  if (op == "mul" && has("wide")) return WithInteger(type, Wide(at));
  if (op == "mul")
    return WithType(type, Binary(at, [](auto a, auto b) { return Wrapping(a) * Wrapping(b); }));
  if ((op == "mad" && !has("wide")) || op == "fma") return WithType(type, MultiplyAdd(at));
  if (op == "div") return WithType(type, Binary(at, kDivide));
  if (op == "rem") return WithInteger(type, Binary(at, [](auto a, auto b) { return b == 0 ? a : a % b; }));
  if (op == "min") return WithType(type, Binary(at, kMin));
  if (op == "max") return WithType(type, Binary(at, kMax));
  if (op == "neg") return WithType(type, Unary(at, [](auto a) { return -Wrapping(a); }));
  if (op == "abs") return WithType(type, Unary(at, kAbsolute));
  if (op == "sqrt") return WithFloat(type, Unary(at, [](auto a) { return std::sqrt(a); }));
  if (op == "and") return WithBits(type, Binary(at, [](auto a, auto b) { return a & b; }));
  if (op == "or") return WithBits(type, Binary(at, [](auto a, auto b) { return a | b; }));
  if (op == "xor") return WithBits(type, Binary(at, [](auto a, auto b) { return a ^ b; }));
  if (op == "not" && type == "pred") return Unary(at, [](bool a) { return !a; })(bool());
  if (op == "not") return WithInteger(type, Unary(at, [](auto a) { return ~std::uint64_t(a); }));
  if (op == "bfe") return ExtractBits(type, at);
  if (op == "shl" || op == "shr") return Shift(op == "shl", type, at);
  return nullptr;
}

}  // namespace pretend_gpu
