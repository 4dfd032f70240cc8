#include "coordinator/engine/engine.h"
#include "policies/launch/client_table.h"
#include <cstdio>
using namespace lull; using namespace lull::policies;
class FirstCome final : public LaunchPolicy {
 public:
  void step(Instant, std::span<const Event> events, std::vector<Decision>& out) override {
    for (const Event& event : events) table_.apply(event);
    Member* owner = table_.find(owner_);
    if (owner == nullptr || !owner->has_work()) {
      for (Member& member : table_.members()) {
        if (member.has_work()) { owner = &member; break; }
      }
    }
    for (Member& member : table_.members()) {
      if (owner == nullptr || &member == owner) ClientTable::open(member, out);
      else ClientTable::close(member, out);
    }
    owner_ = owner == nullptr ? ClientId{} : owner->client;
  }
 private:
  ClientTable table_;
  ClientId owner_;
};
std::unique_ptr<LaunchPolicy> make_first_come(const SettingValues&) { return std::make_unique<FirstCome>(); }
const PolicyRow rows[]={{"first_come", {}, ProgressNeed::kBetweenJobs, Holding::kByOrder, make_first_come}};
int main(){ using namespace lull::engine; EngineOptions o; o.policy="first_come"; o.policies=rows; Engine e(o); std::vector<Output> out; std::vector<Input> in;
 for (uint32_t i=1;i<3;++i){in.emplace_back(ClientAttached{ClientId{i},JobId{i},Priority{5},"x"});in.emplace_back(DeviceUsed{ClientId{i},DeviceId{0}});}
 in.emplace_back(Launched{ClientId{2},DeviceId{0},StreamSlot{0},1,KernelId{1},Instant{0}}); e.step(Instant{0},in,out); in.clear();
 for(auto&x:e.status().clients) printf("%d ",(int)x.devices[0].gate); in.emplace_back(Progressed{ClientId{2},StreamSlot{0},1}); e.step(Instant{10},in,out); for(auto&x:e.status().clients) printf("%d ",(int)x.devices[0].gate); puts(e.status().policy.c_str()); }
