// Who may hold how much device memory: one limit for a process, or for all processes of a job on
// each device. The shim lets an allocation pass while its use stays within its allowance; when it
// needs more it writes `wanted_bytes`, and the ledger gives what the job's limit leaves, taking
// back from the job's other members what they do not use.
//
// The sum of a job's allowances on a device never exceeds its limit, but for what a member had
// already allocated. Of clients that take turns the ledger only knows the limit: what they may hold now is
// given from what is free (daemon_moves.cc). Loop thread; sees sessions, not sockets.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "coordinator/daemon/device_table.h"
#include "coordinator/daemon/session.h"

namespace lull::daemon {

inline constexpr uint64_t kNoLimit = UINT64_MAX;
inline constexpr uint64_t kAllowanceStepBytes = 64ULL << 20;

class MemoryLedger {
 public:
  explicit MemoryLedger(uint64_t reserve_bytes) : reserve_bytes_(reserve_bytes) {}

  // What a client of this job starts with on every device, before its devices are known.
  uint64_t birth_allowance(JobId job, uint64_t limit_bytes) const;
  void join(Session& session);
  void leave(Session& session, const DeviceTable& devices);
  // After each drain: sets allowances of devices that became known and serves what is wanted.
  void look(Session& session, const DeviceTable& devices);
  // What this client may hold there in all, by the limits of its job.
  uint64_t most_for(const Session& session, DeviceId device, const DeviceTable& devices) const;
  void set_reserve(uint64_t reserve_bytes) { reserve_bytes_ = reserve_bytes; }

 private:
  struct Member {
    Session* session;
    uint32_t devices_settled = 0;  // a bit an index
  };
  struct Job {
    uint64_t limit_bytes = kNoLimit;  // the smallest that a member named
    std::vector<Member> members;
  };

  void settle(Job& job, Member& member, uint32_t index, const DeviceTable& devices);
  void serve(Job& job, Session& session, uint32_t index, uint64_t wanted,
             const DeviceTable& devices);
  uint64_t cap(const Job& job, DeviceId device, const DeviceTable& devices) const;

  uint64_t reserve_bytes_;
  std::unordered_map<uint64_t, Job> jobs_;
};

}  // namespace lull::daemon
