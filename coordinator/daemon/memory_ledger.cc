#include "coordinator/daemon/memory_ledger.h"

#include <algorithm>

namespace lull::daemon {
namespace {

// What it holds, and what it has been admitted for and is allocating now.
uint64_t in_use(const Session& session, uint32_t index) {
  const uint64_t wanted = channel::memory_wanted(session.region(), index);
  const bool allowed = wanted <= channel::memory_allowance(session.region(), index);
  return std::max(channel::memory_used(session.region(), index), allowed ? wanted : 0);
}

// What a member holds or may still take on `device`.
uint64_t claim(const Session& session, DeviceId device) {
  uint64_t most = 0;
  for (uint32_t index = 0; index < session.device_count(); ++index) {
    if (session.device(index) != device) continue;
    most = std::max({most, channel::memory_used(session.region(), index),
                     channel::memory_allowance(session.region(), index)});
  }
  return most;
}

// Takes back what the member does not use, down to `keep` bytes at most `wanted` in all; returns
// how much came back.
uint64_t take_back(Session& session, DeviceId device, uint64_t wanted) {
  uint64_t back = 0;
  for (uint32_t index = 0; index < session.device_count() && back < wanted; ++index) {
    if (session.device(index) != device) continue;
    const uint64_t before = channel::memory_allowance(session.region(), index);
    const uint64_t used = in_use(session, index);
    if (before <= used) continue;
    const uint64_t after = before - std::min(before - used, wanted - back);
    session.set_allowance(index, after);
    // It may have allocated between the reading and the store.
    const uint64_t used_now = in_use(session, index);
    const uint64_t settled = std::clamp(used_now, after, before);
    if (settled != after) session.set_allowance(index, settled);
    back += before - settled;
  }
  return back;
}

uint64_t rounded_up(uint64_t bytes) {
  const uint64_t steps = bytes / kAllowanceStepBytes + (bytes % kAllowanceStepBytes != 0 ? 1 : 0);
  return steps >= kNoLimit / kAllowanceStepBytes ? kNoLimit : steps * kAllowanceStepBytes;
}

}  // namespace

uint64_t MemoryLedger::birth_allowance(JobId job, uint64_t limit_bytes) const {
  const auto found = jobs_.find(job.value);
  const uint64_t limit = limit_bytes == 0 ? kNoLimit : limit_bytes;
  if (found == jobs_.end()) return limit;
  // The devices are not known yet: nothing until they are, unless nothing is limited.
  return std::min(limit, found->second.limit_bytes) == kNoLimit ? kNoLimit : 0;
}

void MemoryLedger::join(Session& session) {
  Job& job = jobs_[session.who().job.value];
  const uint64_t limit = session.who().memory_limit_bytes;
  if (limit != 0) job.limit_bytes = std::min(job.limit_bytes, limit);
  job.members.push_back({.session = &session});
  for (Member& member : job.members) member.devices_settled = 0;
}

void MemoryLedger::leave(Session& session, const DeviceTable& devices) {
  const auto found = jobs_.find(session.who().job.value);
  if (found == jobs_.end()) return;
  std::erase_if(found->second.members, [&](const Member& m) { return m.session == &session; });
  if (found->second.members.empty()) {
    jobs_.erase(found);
    return;
  }
  for (const Member& member : found->second.members) look(*member.session, devices);
}

uint64_t MemoryLedger::cap(const Job& job, DeviceId device, const DeviceTable& devices) const {
  const DeviceRow* row = devices.find(device);
  if (reserve_bytes_ == 0 || row == nullptr || row->known.total_bytes == 0) return job.limit_bytes;
  const uint64_t total = row->known.total_bytes;
  const uint64_t left = total > reserve_bytes_ ? total - reserve_bytes_ : 0;
  return std::min(job.limit_bytes, left);
}

uint64_t MemoryLedger::most_for(const Session& session, DeviceId device,
                                const DeviceTable& devices) const {
  const auto found = jobs_.find(session.who().job.value);
  if (found == jobs_.end()) return kNoLimit;
  const uint64_t limit = cap(found->second, device, devices);
  if (limit == kNoLimit) return limit;
  uint64_t others = 0;
  for (const Member& other : found->second.members) {
    if (other.session != &session) others += std::min(claim(*other.session, device), limit);
  }
  return limit - std::min(limit, others);
}

void MemoryLedger::look(Session& session, const DeviceTable& devices) {
  if (session.takes_turns()) return;
  const auto found = jobs_.find(session.who().job.value);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  const auto member = std::find_if(job.members.begin(), job.members.end(),
                                   [&](const Member& m) { return m.session == &session; });
  if (member == job.members.end()) return;
  for (uint32_t index = 0; index < session.device_count(); ++index) {
    if (!session.device(index)) continue;
    if ((member->devices_settled >> index & 1) == 0) settle(job, *member, index, devices);
    const uint64_t wanted = channel::memory_wanted(session.region(), index);
    if (wanted > channel::memory_allowance(session.region(), index)) {
      serve(job, session, index, wanted, devices);
    }
  }
}

void MemoryLedger::settle(Job& job, Member& member, uint32_t index, const DeviceTable& devices) {
  member.devices_settled |= 1U << index;
  const DeviceId device = *member.session->device(index);
  const uint64_t limit = cap(job, device, devices);
  if (limit == kNoLimit) {
    member.session->set_allowance(index, kNoLimit);
    return;
  }
  uint64_t others = 0;
  for (const Member& other : job.members) {
    if (other.session == member.session) continue;
    const uint64_t theirs = claim(*other.session, device);
    others = theirs > kNoLimit - others ? kNoLimit : others + theirs;
  }
  member.session->set_allowance(index, others < limit ? limit - others : 0);
}

void MemoryLedger::serve(Job& job, Session& session, uint32_t index, uint64_t wanted,
                         const DeviceTable& devices) {
  const DeviceId device = *session.device(index);
  const uint64_t limit = cap(job, device, devices);
  if (wanted > limit) return;
  const uint64_t goal = std::min(rounded_up(wanted), limit);
  uint64_t others = 0;
  for (const Member& other : job.members) {
    if (other.session != &session) others += std::min(claim(*other.session, device), limit);
  }
  if (others > limit - wanted) {
    for (const Member& other : job.members) {
      if (other.session == &session || others <= limit - goal) continue;
      others -= std::min(others, take_back(*other.session, device, others - (limit - goal)));
    }
  }
  if (others <= limit - wanted) session.set_allowance(index, std::min(goal, limit - others));
}

}  // namespace lull::daemon
