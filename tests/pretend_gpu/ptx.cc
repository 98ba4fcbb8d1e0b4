#include "tests/pretend_gpu/ptx.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "tests/pretend_gpu/diagnostics.h"
#include "tests/pretend_gpu/ptx_steps.h"
#include "tests/pretend_gpu/ptx_text.h"

namespace pretend_gpu {
namespace {

// All parameters lie in one block of words, each at its own offset.
struct Parameter {
  std::size_t place;  // of its address, among the registers
  std::size_t first_word;
  std::size_t bytes;
};

// A register that says which thread it is, such as %tid.x.
struct Special {
  std::size_t place;
  Dim ThreadIndex::* of;
  unsigned Dim::* axis;
};

struct Program {
  std::vector<PtxStep> steps;
  std::vector<Parameter> parameters;
  std::size_t parameter_words = 0;
  std::vector<Special> specials;
  PtxRegisters registers;
};

PtxStep MakeJump(const PtxKernel& kernel, const PtxInstruction& instruction) {
  std::size_t to = kernel.instructions.size();
  if (instruction.name[0] == "bra") {
    const auto label = kernel.labels.find(instruction.operands[0]);
    if (label == kernel.labels.end()) return nullptr;
    to = label->second;
  }
  return [to](PtxThread& thread) { thread.next = to; };
}

PtxStep MakeStep(const PtxKernel& kernel, const PtxInstruction& instruction, PtxRegisters& registers) {
  const bool jump = instruction.name[0] == "bra" || instruction.name[0] == "ret";
  PtxStep step = jump ? MakeJump(kernel, instruction) : MakePtxStep(instruction, registers);
  if (step == nullptr || instruction.guard.empty()) return step;
  const std::size_t guard = registers.PlaceOf(instruction.guard, "pred");
  return [guard, negated = instruction.negated, step = std::move(step)](PtxThread& thread) {
    if ((thread.registers[guard] != 0) != negated) step(thread);
  };
}

std::shared_ptr<const Program> Compile(const PtxKernel& kernel, const std::string& name) {
  const auto program = std::make_shared<Program>();
  for (const PtxParameter& parameter : kernel.parameters) {
    program->parameters.push_back(
        {program->registers.PlaceOf(parameter.name, "u64"), program->parameter_words, parameter.bytes});
    program->parameter_words += (parameter.bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
  }
  const std::pair<const char*, Dim ThreadIndex::*> kinds[] = {{"%ctaid", &ThreadIndex::block_index},
                                                              {"%nctaid", &ThreadIndex::grid},
                                                              {"%ntid", &ThreadIndex::block},
                                                              {"%tid", &ThreadIndex::thread_index}};
  const std::pair<const char*, unsigned Dim::*> axes[] = {{".x", &Dim::x}, {".y", &Dim::y}, {".z", &Dim::z}};
  for (const auto& [kind, of] : kinds) {
    for (const auto& [axis, member] : axes) {
      program->specials.push_back({program->registers.PlaceOf(std::string(kind) + axis, "u32"), of, member});
    }
  }
  for (const PtxInstruction& instruction : kernel.instructions) {
    program->steps.push_back(MakeStep(kernel, instruction, program->registers));
    if (program->steps.back() == nullptr) {
      End("kernel %s comes as PTX, and its instruction `%s` is not known; "
          "add it to ptx_steps.cc, or register a twin",
          name.c_str(), instruction.Describe().c_str());
    }
  }
  return program;
}

void RunThread(const Program& program, const std::vector<std::uint64_t>& initial, const ThreadIndex& index) {
  PtxThread thread{initial};
  for (const Special& special : program.specials) {
    thread.registers[special.place] = index.*special.of.*special.axis;
  }
  while (thread.next < program.steps.size()) program.steps[thread.next++](thread);
}

using Words = std::vector<std::uint64_t>;

// Parameters have no types in PTX. So each word that is an address of device memory is taken for one, also
// inside of structs.
void TranslateAddresses(Words* parameters) {
  for (std::uint64_t& word : *parameters) {
    void* const address = reinterpret_cast<void*>(word);
    if (!pretend_gpu_is_device_memory(address)) continue;
    word = reinterpret_cast<std::uint64_t>(pretend_gpu_translate(address, 1));
  }
}

}  // namespace

std::shared_ptr<const Bind> TwinOfPtx(const std::string& text, const std::string& name) {
  const std::optional<PtxKernel> kernel = FindPtxKernel(text, name);
  if (!kernel) return nullptr;
  const std::shared_ptr<const Program> program = Compile(*kernel, name);
  return std::make_shared<const Bind>([program](const Launch& launch, void** arguments) {
    const auto block = std::make_shared<Words>(program->parameter_words);
    std::vector<std::uint64_t> initial = program->registers.initial();
    for (std::size_t i = 0; i < program->parameters.size(); i++) {
      const Parameter& parameter = program->parameters[i];
      std::uint64_t* const words = block->data() + parameter.first_word;
      std::memcpy(words, arguments[i], parameter.bytes);
      initial[parameter.place] = reinterpret_cast<std::uint64_t>(words);
    }
    TranslateAddresses(block.get());
    return std::function<void()>([program, initial, block, grid = launch.grid, threads = launch.block] {
      ForEachThread(grid, threads, [&](const ThreadIndex& index) { RunThread(*program, initial, index); });
    });
  });
}

}  // namespace pretend_gpu
