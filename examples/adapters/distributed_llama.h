/* distributed_llama.h - the messages between the nodes of distributed-llama over coll.h, while it computes tokens.
 *
 * The nodes of distributed-llama find each other and send the weights over their own sockets, as before.  Then they make a
 * communicator: rank 0 is the root node, rank i the i-th worker.  Rank 0 listens at the address by which the workers have been
 * reached, port 9989; COLL_ADDR gives another one.  Between hosts all nodes need the same COLL_KEY.
 *
 * nn-network.cpp and app.cpp include this file behind nn-network.hpp.  The first calls nodes_sync in the function
 * sync, nodes_join when the nodes are connected, and nodes_leave before it closes the connections.  The second sends its control
 * packets by nodes_broadcast.  distributed_llama.sh makes these changes.  If a node fails, the others get an exception that
 * names it. */
#pragma once

#include "coll.h"

#include <arpa/inet.h>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

inline coll_comm *&nodes_comm()
{
    static coll_comm *comm = nullptr;
    return comm;
}

/* Of the node with this rank; `socket` is connected to the root node, or to the first worker. */
inline void nodes_join(int rank, int size, int socket)
{
    sockaddr_in at{};
    socklen_t length = sizeof at;
    coll_config config{};

    (rank == 0 ? getsockname : getpeername)(socket, reinterpret_cast<sockaddr *>(&at), &length);
    const std::string address = std::string(inet_ntoa(at.sin_addr)) + ":9989";
    config.rank = rank, config.size = size;
    config.address = std::getenv("COLL_ADDR") ? nullptr : address.c_str();
    if (coll_init(&nodes_comm(), &config) != COLL_OK) throw std::runtime_error(coll_error(nullptr));
}

inline void nodes_leave()
{
    coll_free(nodes_comm());
    nodes_comm() = nullptr;
}

inline void nodes_checked(coll_status status)
{
    if (status != COLL_OK) throw std::runtime_error(coll_error(nodes_comm()));
}

/* From the root node to all others. */
inline bool nodes_broadcast(void *data, size_t bytes)
{
    nodes_checked(coll_broadcast(nodes_comm(), data, bytes, COLL_U8, 0));
    return true;
}

/* Behind a segment.  A pipe has a row for each token of the batch, and a row has a slice of each node.  All nodes get all slices,
 * or the root node alone does; or all get the rows of the root node. */
inline void nodes_sync(NnNetExecution *execution, NnNetConfig *net, NnSegmentConfig *segment)
{
    coll_comm *const comm = nodes_comm();
    const size_t tokens = execution->batchSize;
    std::vector<coll_request *> requests(tokens);

    for (NnUint i = 0; i < segment->nSyncs; i++) {
        const NnSyncConfig &sync = segment->syncs[i];
        const NnPipeConfig &pipe = net->pipes[sync.pipeIndex];
        const size_t bytes = getBytes(pipe.size.floatType, pipe.size.x), slice = bytes / static_cast<size_t>(coll_size(comm));
        NnByte *row = execution->pipes[sync.pipeIndex];

        if (sync.syncType == SYNC_WITH_ROOT) {
            nodes_broadcast(row, tokens * bytes);
            continue;
        }
        coll_call call{};
        call.kind = sync.syncType == SYNC_NODE_SLICES ? COLL_ALLGATHER : COLL_GATHER;
        call.count = slice, call.type = COLL_U8;
        for (size_t token = 0; token < tokens; token++, row += bytes) {
            call.send = row + slice * static_cast<size_t>(coll_rank(comm)), call.recv = row;
            if (tokens == 1) nodes_checked(coll_run(comm, &call));
            else nodes_checked(coll_start(comm, &call, &requests[token]));
        }
        nodes_checked(coll_wait_all(static_cast<int>(tokens), requests.data()));
    }
}
