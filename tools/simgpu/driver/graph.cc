#include "tools/simgpu/driver/graph.h"

#include <algorithm>
#include <unordered_map>

namespace simgpu::driver {
namespace {

constexpr size_t kMaxBranchLanes = 7;  // and the launching stream's own

}  // namespace

std::shared_ptr<Graph> create_graph(State& state) {
  auto graph = std::make_shared<Graph>();
  graph->handle = state.new_handle();
  state.graphs.add(graph);
  return graph;
}

bool add_edge(GraphNode& from, GraphNode& to, const CUgraphEdgeData* data) {
  if (&from == &to || from.graph != to.graph) return false;
  if (std::find(to.dependencies.begin(), to.dependencies.end(), &from) != to.dependencies.end()) {
    return false;
  }
  to.dependencies.push_back(&from);
  from.dependents.push_back(&to);
  if (data != nullptr) to.edge[&from] = *data;
  return true;
}

GraphNode* add_node(State& state, Graph& graph, Work work,
                    const std::vector<GraphNode*>& dependencies) {
  auto node = std::make_shared<GraphNode>();
  node->handle = state.new_handle();
  node->graph = &graph;
  node->work = std::move(work);
  if (auto* kernel = std::get_if<KernelWork>(&node->work)) kernel->point_to_arguments();
  for (GraphNode* dependency : dependencies) add_edge(*dependency, *node);
  graph.nodes.push_back(node);
  state.nodes.add(node);
  return node.get();
}

std::shared_ptr<Graph> clone_graph(State& state, const Graph& graph, bool owned) {
  auto clone = create_graph(state);
  clone->owned = owned;
  clone->original = graph.handle;
  std::unordered_map<const GraphNode*, GraphNode*> copy;
  for (const auto& node : graph.nodes) {
    Work work = node->work;
    if (auto* child = std::get_if<ChildWork>(&work)) {
      child->graph = clone_graph(state, *child->graph, /*owned=*/true);
    }
    GraphNode* added = add_node(state, *clone, std::move(work), {});
    added->original = node->handle;
    added->enabled = node->enabled;
    copy[node.get()] = added;
  }
  for (const auto& node : graph.nodes) {
    for (const GraphNode* dependency : node->dependencies) {
      const auto data = node->edge.find(dependency);
      add_edge(*copy[dependency], *copy[node.get()],
               data == node->edge.end() ? nullptr : &data->second);
    }
  }
  return clone;
}

void forget_graph(State& state, const std::shared_ptr<Graph>& graph) {
  for (const auto& node : graph->nodes) {
    if (const auto* child = std::get_if<ChildWork>(&node->work)) forget_graph(state, child->graph);
    state.nodes.remove(node->handle);
  }
  state.graphs.remove(graph->handle);
}

std::vector<GraphNode*> in_order(const Graph& graph) {
  std::unordered_map<const GraphNode*, size_t> open;
  std::vector<GraphNode*> order;
  for (const auto& node : graph.nodes) {
    open[node.get()] = node->dependencies.size();
    if (node->dependencies.empty()) order.push_back(node.get());
  }
  for (size_t at = 0; at < order.size(); ++at) {
    for (GraphNode* dependent : order[at]->dependents) {
      if (--open[dependent] == 0) order.push_back(dependent);
    }
  }
  if (order.size() != graph.nodes.size()) order.clear();
  return order;
}

GraphNode* find_clone(const Graph& graph, uint64_t original) {
  for (const auto& node : graph.nodes) {
    if (node->original == original) return node.get();
    if (const auto* child = std::get_if<ChildWork>(&node->work)) {
      if (GraphNode* found = find_clone(*child->graph, original)) return found;
    }
  }
  return nullptr;
}

std::expected<OpPoint, CUresult> submit_graph(State& state, Context& context, const Graph& graph,
                                              StreamId lane, std::vector<OpPoint> waits,
                                              std::vector<StreamId>& branch_lanes) {
  const std::vector<GraphNode*> order = in_order(graph);
  const bool chain =
      std::ranges::all_of(order,
                          [](const GraphNode* node) {
                            return node->dependencies.size() <= 1 && node->dependents.size() <= 1;
                          }) &&
      std::ranges::count_if(order,
                            [](const GraphNode* node) { return node->dependencies.empty(); }) <= 1;
  const auto entry = submit_op(state, lane, {.kind = OpKind::kMarker}, std::move(waits));
  if (!entry || order.empty()) return entry;
  std::unordered_map<const GraphNode*, OpPoint> done;
  std::unordered_map<StreamId, const GraphNode*, decltype([](const StreamId& id) {
                       return std::hash<uint64_t>()(uint64_t{id.slot} << 32 | id.generation);
                     })>
      tail;
  size_t next_lane = 0;
  for (const GraphNode* node : order) {
    // A node follows its first dependency on the same lane where nobody else has yet; other
    // branches get lanes of their own as far as there are any.
    StreamId home = lane;
    std::vector<OpPoint> after{*entry};
    for (const GraphNode* dependency : node->dependencies) after.push_back(done[dependency]);
    if (!chain) {
      bool found = node->dependencies.empty() && !tail.contains(lane);
      for (const GraphNode* dependency : node->dependencies) {
        if (found) break;
        if (tail[done[dependency].stream] == dependency) {
          home = done[dependency].stream;
          found = true;
        }
      }
      if (!found) {
        if (branch_lanes.size() < kMaxBranchLanes && next_lane >= branch_lanes.size()) {
          if (const auto made = state.device->create_stream(context.engine)) {
            branch_lanes.push_back(*made);
          }
        }
        if (!branch_lanes.empty()) home = branch_lanes[next_lane++ % branch_lanes.size()];
      }
    }
    const auto point = node->enabled
                           ? submit_work(state, context, home, node->work, std::move(after))
                           : submit_work(state, context, home, EmptyWork{}, std::move(after));
    if (!point) return point;
    done[node] = *point;
    tail[home] = node;
  }
  std::vector<OpPoint> leaves;
  for (const GraphNode* node : order) {
    if (node->dependents.empty()) leaves.push_back(done[node]);
  }
  if (leaves.size() == 1 && leaves[0].stream == lane) return leaves[0];
  return submit_op(state, lane, {.kind = OpKind::kMarker}, std::move(leaves));
}

}  // namespace simgpu::driver
