#include "dist/engines/flat_engine.h"

#include "core/ops.h"

namespace sg::dist {

void FlatEngine::allocate(const std::vector<Owned>&) {
  CategoryScope scope(Category::parameters);
  parameters_ = empty({space_.size()}, options_.precision);
}

void FlatEngine::place(const Placed& parameter, const Tensor& value) {
  Variable p = parameter.parameter;
  const Tensor place =
      parameters_.slice(0, parameter.offset, parameter.offset + parameter.size).reshape(p.shape());
  copy_(place, value);
  p.set_tensor(place);
}

void FlatEngine::gather_parameters() {
  arriving_.assign(space_.buckets().size(), {});
  // In the order in which forward needs them: the last bucket holds the first parameters.
  for (size_t b = space_.buckets().size(); b-- > 0;) {
    const auto& messages = space_.buckets()[b].messages;
    for (size_t m = 0; m < messages.size(); ++m) {
      const Message& message = messages[m];
      const Tensor whole = parameters_.slice(0, message.begin, message.end);
      const Call call{fmt::format("{}.parameters.{}.{} from {}",
                                  name_of(options_.engine),
                                  b,
                                  m,
                                  space_.at(message.begin).parameter.name()),
                      Phase::step};
      arriving_[b].push_back(
          comm_.all_gather(call, message.shards.of(whole, comm_.rank()), message.shards, whole));
      if (!options_.overlap)
        arriving_[b].back().wait();
    }
  }
}

void FlatEngine::before_use(int position) {
  if (arriving_.empty())
    return;
  auto& works = arriving_[static_cast<size_t>(space_.bucket_of(position))];
  for (Work& work : works)
    work.wait();
  works.clear();
}

// Variables keep the memory that they lie in.
bool FlatEngine::give_back(bool) {
  await_parameters();
  parameters_ = {};
  return true;
}

void FlatEngine::await_parameters() {
  for (auto& works : arriving_) {
    for (Work& work : works)
      work.wait();
    works.clear();
  }
}

}  // namespace sg::dist
