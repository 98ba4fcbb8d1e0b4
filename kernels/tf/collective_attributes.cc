#include "kernels/tf/collective_attributes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace tf_smddp {
namespace {

using ::tensorflow::OpKernelConstruction;

absl::Status ReadCompression(OpKernelConstruction* context, CollectiveAttributes* attributes) {
  if (!context->HasAttr("compression")) return absl::OkStatus();
  std::string name;
  TF_RETURN_IF_ERROR(context->GetAttr("compression", &name));
  Compression& compression = attributes->operation.compression;
  if (name == "fp16") compression = Compression::kFloat16;
  if (name == "bf16") compression = Compression::kBFloat16;
  return absl::OkStatus();
}

absl::Status ReadReduction(OpKernelConstruction* context, CollectiveAttributes* attributes) {
  std::string op;
  TF_RETURN_IF_ERROR(context->GetAttr("reduce_op", &op));
  if (!ParseReduceOp(op.c_str(), &attributes->operation.op)) {
    return absl::InvalidArgumentError("reduce_op '" + op + "' is not one of sum, average, min, max, product");
  }
  return ReadCompression(context, attributes);
}

// Finds the inputs that are not the tensors. They are the last ones: the ticket, the factors, the labels.
absl::Status ReadInputs(OpKernelConstruction* context, CollectiveAttributes* attributes) {
  int next = context->num_inputs();
  int count = 0;
  TF_RETURN_IF_ERROR(context->GetAttr("num_labels", &count));
  if (count > 1) return absl::InvalidArgumentError("num_labels is " + std::to_string(count) + ", above 1");
  if (count == 1) attributes->labels_input = --next;
  count = 0;
  if (context->HasAttr("num_factors")) TF_RETURN_IF_ERROR(context->GetAttr("num_factors", &count));
  if (count > 1) return absl::InvalidArgumentError("num_factors is " + std::to_string(count) + ", above 1");
  if (count == 1) attributes->factors_input = --next;
  if (next > attributes->tensors) attributes->ticket_input = next - 1;
  return absl::OkStatus();
}

absl::Status ReadPairing(OpKernelConstruction* context, Pairing::Kind sequence,
                         CollectiveAttributes* attributes) {
  Pairing& pairing = attributes->pairing;
  pairing.num_params = static_cast<std::uint32_t>(std::max(attributes->tensors, 1));
  int param_index = 0;
  int num_params = 0;
  if (context->HasAttr("num_params")) {
    TF_RETURN_IF_ERROR(context->GetAttr("param_index", &param_index));
    TF_RETURN_IF_ERROR(context->GetAttr("num_params", &num_params));
  }
  if (num_params > 0) {
    pairing.param_index = static_cast<std::uint32_t>(param_index);
    pairing.num_params = static_cast<std::uint32_t>(num_params);
  }
  if (attributes->ticket_input >= 0) return absl::OkStatus();
  bool by_name = false;
  TF_RETURN_IF_ERROR(context->GetAttr("pair_by_name", &by_name));
  pairing.kind = by_name ? Pairing::kName : sequence;
  return absl::OkStatus();
}

absl::Status ReadLabels(OpKernelConstruction* context, CollectiveAttributes* attributes) {
  const std::string& node = context->def().name();
  if (context->HasAttr("tensor_name")) {
    std::string given;
    TF_RETURN_IF_ERROR(context->GetAttr("tensor_name", &given));
    attributes->labels = {Label(given, node)};
    return absl::OkStatus();
  }
  std::vector<std::string> given;
  const auto tensors = static_cast<std::size_t>(attributes->tensors);
  TF_RETURN_IF_ERROR(context->GetAttr("tensor_names", &given));
  if (!given.empty() && given.size() != tensors) {
    return absl::InvalidArgumentError("tensor_names has " + std::to_string(given.size()) + " names for " +
                                      std::to_string(tensors) + " tensors; give one each, or none");
  }
  given.resize(tensors);
  for (std::size_t i = 0; i < tensors; ++i) {
    attributes->labels.emplace_back(given[i], tensors == 1 ? node : node + "/" + std::to_string(i));
  }
  return absl::OkStatus();
}

}  // namespace

Label::Label(const std::string& given, const std::string& node) : text(given) {
  const std::size_t end = given.empty() || given[0] != '\n' ? std::string::npos : given.find('\n', 1);
  if (end != std::string::npos) {
    text = given.substr(end + 1);
    if (end == 1) {
      meaning.name = HashOfName(text);
    } else {
      std::sscanf(given.c_str() + 1, "%u %u", &meaning.gradient, &meaning.variable);
    }
  }
  if (text.empty()) text = node;
}

absl::Status CollectiveAttributes::Read(OpKernelConstruction* context, CollectiveKind kind, int tensors,
                                        Pairing::Kind sequence, CollectiveAttributes* attributes) {
  attributes->operation.kind = kind;
  attributes->tensors = tensors;
  int communicator = 0;
  TF_RETURN_IF_ERROR(context->GetAttr("communicator", &communicator));
  attributes->communicator = static_cast<CommunicatorId>(communicator);
  TF_RETURN_IF_ERROR(context->GetAttr("eager", &attributes->eager));
  TF_RETURN_IF_ERROR(ReadInputs(context, attributes));
  if (IsReduction(kind)) TF_RETURN_IF_ERROR(ReadReduction(context, attributes));
  if (context->HasAttr("root_rank")) {
    int root = -1;
    TF_RETURN_IF_ERROR(context->GetAttr("root_rank", &root));
    attributes->operation.root = RankId(root);
  }
  TF_RETURN_IF_ERROR(ReadPairing(context, sequence, attributes));
  return ReadLabels(context, attributes);
}

}  // namespace tf_smddp
