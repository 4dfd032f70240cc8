// Graphs, their nodes, and captures in progress. Plain data guarded by State::mutex.
//
// A capture:  begin -> active --end--> a graph
//                        |  forbidden call, or a merge: invalidated --end--> error, no graph
#pragma once

#include <cuda.h>

#include <map>
#include <memory>
#include <vector>

#include "tools/simgpu/driver/work.h"

namespace simgpu::driver {

struct GraphNode {
  uint64_t handle = 0;
  Graph* graph = nullptr;
  Work work;
  std::vector<GraphNode*> dependencies;
  std::vector<GraphNode*> dependents;
  std::map<const GraphNode*, CUgraphEdgeData> edge;  // from a dependency; absent: all zero
  uint64_t original = 0;                             // handle of the node this is a clone of
  bool enabled = true;
};

struct Graph {
  uint64_t handle = 0;
  std::vector<std::shared_ptr<GraphNode>> nodes;  // in order of creation
  bool owned = false;                             // a child's: not the program's to destroy
  uint64_t original = 0;
};

struct GraphExec {
  uint64_t handle = 0;
  std::shared_ptr<Graph> graph;
  std::weak_ptr<Context> context;
  uint64_t flags = 0;
  std::vector<StreamId> lanes;  // for branches; the launching stream is one more
  OpPoint last;                 // end of the newest launch: launches of one exec never overlap
};

struct Capture {
  uint64_t id = 0;
  std::shared_ptr<Graph> graph;
  bool graph_is_given = false;  // BeginCaptureToGraph
  std::weak_ptr<Stream> origin;
  std::weak_ptr<Context> context;
  std::vector<std::weak_ptr<Stream>> streams;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;
  bool invalidated = false;
  std::vector<CUgraphNode> reported;  // what getCaptureInfo's pointer shows
  std::vector<CUgraphEdgeData> reported_edges;
};

std::shared_ptr<Graph> create_graph(State& state);
GraphNode* add_node(State& state, Graph& graph, Work work,
                    const std::vector<GraphNode*>& dependencies);
bool add_edge(GraphNode& from, GraphNode& to, const CUgraphEdgeData* data = nullptr);
std::shared_ptr<Graph> clone_graph(State& state, const Graph& graph, bool owned);
void forget_graph(State& state, const std::shared_ptr<Graph>& graph);
// Dependencies before dependents; empty if there is a cycle (or no node).
std::vector<GraphNode*> in_order(const Graph& graph);
// The clone of `original` (a handle) in the graph or in a child of it.
GraphNode* find_clone(const Graph& graph, uint64_t original);
// Submits all of it, after the points; returns the point at which it is all complete.
std::expected<OpPoint, CUresult> submit_graph(State& state, Context& context, const Graph& graph,
                                              StreamId lane, std::vector<OpPoint> waits,
                                              std::vector<StreamId>& branch_lanes);

// A call that may not be made now makes every capture that it touches useless.
CUresult invalidate(Capture& capture, CUresult error);
// 900 when a capture forbids calls like memory allocation to this thread.
CUresult refuse_unsafe_call(State& state);
// 906 for the legacy stream while a blocking stream of the context captures.
CUresult refuse_legacy_in_capture(State& state, const Stream& stream, bool invalidates);
// 900 for calls that wait for all of a context while a stream of it captures.
CUresult refuse_context_wait(State& state, const Context& context);

}  // namespace simgpu::driver
