#include "policies/jobs/fifo.h"

#include "policies/jobs/ordered_policy.h"

namespace lull::jobs {
namespace {

class Fifo final : public OrderedPolicy {
 public:
  explicit Fifo(bool skip) : OrderedPolicy({.preempt = false, .strict = !skip}) {}

 private:
  Key key_of(Instant, Unit& unit) override { return {static_cast<int64_t>(unit.first().arrival)}; }
};

}  // namespace

std::unique_ptr<JobPolicy> make_fifo(const SettingValues& values) {
  return std::make_unique<Fifo>(values["skip"] != 0);
}

}  // namespace lull::jobs
