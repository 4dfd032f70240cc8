// Fields of a reply of lulld, which may be of another version: what it leaves out, or gives as another
// type, reads as the fallback. Called by the commands that show replies; pure.
#pragma once

#include <nlohmann/json.hpp>

namespace lull::command {

template <typename T>
T field(const nlohmann::json& object, const char* name, T fallback) {
  if (!object.is_object()) return fallback;
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return fallback;
  try {
    return found->get<T>();
  } catch (const nlohmann::json::exception&) {
    return fallback;
  }
}

// An empty list where there is none.
inline const nlohmann::json& list(const nlohmann::json& object, const char* name) {
  static const nlohmann::json kNone = nlohmann::json::array();
  if (!object.is_object()) return kNone;
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? *found : kNone;
}

}  // namespace lull::command
