// Modules as contexts see them, and the instances that libraries make of themselves on demand.
// Called with State::mutex held.
#pragma once

#include <memory>
#include <string_view>

#include "tools/simgpu/driver/state.h"

namespace simgpu::driver {

// The library as a module of the context, made on the first request. Null: `error` says why.
std::shared_ptr<Module> instantiate_library(State& state, Library& library, Context& context,
                                            CUresult& error);
std::shared_ptr<Function> module_function(State& state, Module& module, std::string_view name);

}  // namespace simgpu::driver
