// Sums of sparse tensors: every rank's elements go to all ranks, and each adds them up in the order of the ranks.

#include "backend.hpp"
#include "error.hpp"

namespace unisono_torch {
namespace {

// The shape of a sparse tensor, which all ranks have alike, and its number of elements, which differs.
at::Tensor shape_of(const at::Tensor& tensor) {
  std::vector<int64_t> facts{tensor.sparse_dim(), tensor.dense_dim()};
  facts.insert(facts.end(), tensor.sizes().begin(), tensor.sizes().end());
  facts.push_back(tensor._nnz());
  return at::tensor(facts, at::kLong);
}

}  // namespace

// The number of elements decides the next call, so the function returns when all has ended, also when the program asks
// for a handle.
Backend::WorkHandle Backend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  at::Tensor& tensor = only("all_reduce of sparse tensors", tensors);
  TORCH_CHECK(tensor.layout() == at::kSparse && tensor.device().is_cpu(),
              "unisono: all_reduce of sparse tensors takes COO tensors of the CPU, not ", tensor.layout(), " of ",
              tensor.device());
  TORCH_CHECK(options.reduceOp.op_ == c10d::ReduceOp::SUM, "unisono: sparse tensors can only be added up");
  const at::NoGradGuard no_gradients;
  c10d::AllgatherOptions at_once;
  at_once.timeout = options.timeout;
  at_once.asyncOp = false;

  const at::Tensor input = tensor.coalesce();
  at::Tensor shape = shape_of(input);
  at::Tensor shapes = at::empty({size_, shape.numel()}, shape.options());
  _allgather_base(shapes, shape, at_once)->wait();
  const int64_t last = shape.numel() - 1;
  std::vector<Tensors> indices(1);
  std::vector<Tensors> values(1);
  for (int64_t rank = 0; rank < size_; rank++) {
    TORCH_CHECK(shapes[rank].slice(0, 0, last).equal(shape.slice(0, 0, last)), "unisono: the sparse tensor of rank ",
                rank, " has another shape than that of rank ", rank_);
    const int64_t elements = shapes[rank][last].item<int64_t>();
    auto sizes = input.values().sizes().vec();
    sizes.front() = elements;
    indices.front().push_back(at::empty({input.sparse_dim(), elements}, input.indices().options()));
    values.front().push_back(at::empty(sizes, input.values().options()));
  }
  Tensors own_indices{input.indices()};
  Tensors own_values{input.values()};
  allgather(indices, own_indices, at_once)->wait();
  allgather(values, own_values, at_once)->wait();
  const at::Tensor sum =
      at::sparse_coo_tensor(at::cat(indices.front(), 1), at::cat(values.front(), 0), input.sizes(), input.options())
          .coalesce();
  tensor.copy_(sum);

  Facts facts{rank_, c10d::OpType::_ALLREDUCE_SPARSE, event_title("sparse_all_reduce"), {}, tensors, sequence_number_,
              options.timeout, std::nullopt};
  auto work = c10::make_intrusive<Work>(std::move(facts));
  unisono_outcome_t outcome{};
  outcome.source = -1;
  work->end(outcome);
  return work;
}

}  // namespace unisono_torch
