// Where an engine's trainable parameters lie: one of its two parts. Here whole, in one flat array
// (ddp, dp, zero1, zero2); gathered unit by unit in gathered_by_unit.h (zero3).
#pragma once
#include <span>
#include <vector>

#include "dist/engines/flat_space.h"

namespace sg::dist {

class Parameters {
 public:
  virtual ~Parameters() = default;

  // What a parameter's variable is pointed at; without memory where its unit comes and goes.
  virtual Tensor place(const Placed& parameter) = 0;
  // What the optimizer updates: the parameters of a shard, one-dimensional.
  virtual Tensor updated(const Shard& shard) = 0;
  // A parameter is about to be read: it is there on return, or an error says why not.
  virtual void before_use(int position) = 0;
  // Until everything has arrived that was sent after an update.
  virtual void wait() = 0;
  // The engine's end: leaves variables with values of their own. False where they can't be had: a
  // peer is lost, or (`alone`) doesn't take part since this rank alone is ending.
  virtual bool give_back(bool alone) = 0;
};

class WholeParameters final : public Parameters {
 public:
  explicit WholeParameters(const EngineLayout& on);

  Tensor place(const Placed& parameter) override;
  Tensor updated(const Shard& shard) override;
  void before_use(int position) override;
  void wait() override;
  bool give_back(bool alone) override;

  // After an update. Who reads a parameter waits for its bucket, so that a gather overlaps what
  // comes before.
  void all_gather();         // owners send their shards to everybody
  void broadcast(int root);  // waits

 private:
  Call call_of(int bucket, int message) const;

  const EngineLayout on_;
  Tensor flat_;                              // (φ)
  std::vector<std::vector<Work>> arriving_;  // by bucket
};

// Waits for these and forgets them.
void wait_for(std::vector<Work>& works);

}  // namespace sg::dist
