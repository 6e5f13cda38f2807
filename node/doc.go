// Package node makes one running process of freshet's parts: a store, a
// coordinator, and one or more nodes that clients talk to in the Redis protocol.
// It holds no rule of any protocol.
//
// Its files stand in layers, which internal/tidy checks. From the bottom:
//
//   - frame, state, config, spaces, promises, errors, limits: what nodes say to each other, what an
//     operator sees and says, and which promises there are. metrics, roster, watch, tally: what is counted.
//   - node: the types Process and Node, whose methods are in the files above.
//   - net, events, health, membership, cluster, adapters, look: the process among others, its assigner
//     and its spaces.
//   - carry, route, serve, several, tracking, links, members: what becomes of a job, here or at the node
//     that owns its keys.
//   - command, batch, keyspace, info, admin: what clients and operators ask for.
//   - start, process, stop: how all of it begins and ends.
package node
